package mapping

import "unicode"

// The bounds of arguments.
const (
	maxLength  = maxKey // characters that pad and truncate may ask for: no key is longer
	maxDivisor = 1e18   // so that ten times a remainder fits into 64 bits
)

// filters is the whole set, in the order of docs/FILTERS.md. Names are what teams write.
var filters = []*filterType{
	{name: "lower", takes: allTexts, wants: wantsAny, gives: typeText, bind: plain(textStep(otherCase('A', unicode.ToLower)))},
	{name: "upper", takes: allTexts, wants: wantsAny, gives: typeText, bind: plain(textStep(otherCase('a', unicode.ToUpper)))},
	{name: "trim", takes: allTexts, wants: wantsAny, gives: typeText, bind: plain(textStep(trim))},
	{name: "truncate", params: []param{{max: maxLength}}, usage: "truncate(20)", takes: allTexts, wants: wantsAny, gives: typeText, bind: bindTruncate},
	{name: "pad", params: []param{{max: maxLength}, {text: true, optional: true}}, usage: "pad(8, '0')", takes: allTexts, wants: wantsAny, gives: typeText, bind: bindPad},
	{name: "urlencode", takes: allTexts, wants: wantsAny, gives: typeText, bind: plain(bytesStep(urlencode))},

	{name: "hex", takes: stringTypes | typeBytes, wants: "bytes or text", gives: typeLabel, raw: true, bind: plain(bytesStep(toHex))},
	{name: "base64", takes: allTexts, wants: wantsAny, gives: typeLabel, raw: true, bind: plain(bytesStep(base64Standard))},
	{name: "base64url", takes: allTexts, wants: wantsAny, gives: typeLabel, raw: true, bind: plain(bytesStep(base64URL))},
	filterUUID,
	{name: "md5", params: []param{{max: 32, optional: true}}, usage: "md5(16)", takes: allTexts, wants: wantsAny, gives: typeLabel, raw: true, bind: hashed(md5Hex)},
	{name: "sha1", params: []param{{max: 40, optional: true}}, usage: "sha1(16)", takes: allTexts, wants: wantsAny, gives: typeLabel, raw: true, bind: hashed(sha1Hex)},
	{name: "sha256", params: []param{{max: 64, optional: true}}, usage: "sha256(16)", takes: allTexts, wants: wantsAny, gives: typeLabel, raw: true, bind: hashed(sha256Hex)},

	{name: "int", takes: typeInteger | typeDecimal | typeBool | typeText, wants: "a number or a boolean", gives: typeInteger, bind: plain(toInt)},
	{name: "div", params: []param{{max: maxDivisor}}, usage: "div(100)", takes: typeInteger | typeDecimal | typeText, wants: "a number", gives: typeInteger, bind: bindDiv},
	{name: "mod", params: []param{{max: maxDivisor}}, usage: "mod(16)", takes: typeInteger | typeText, wants: "an integer", gives: typeInteger, bind: bindMod},

	{name: "date", params: []param{{text: true}, {text: true, optional: true}}, usage: "date('%Y-%m-%d', 'Europe/Berlin')",
		takes: typeDate | typeTime | typeText, wants: "a date or a timestamp", gives: typeText, bind: bindDate},
	{name: "unix", params: []param{{text: true, optional: true}}, usage: "unix('Europe/Berlin')",
		takes: typeDate | typeTime | typeText, wants: "a date or a timestamp", gives: typeInteger, bind: bindUnix(1)},
	{name: "unix_ms", params: []param{{text: true, optional: true}}, usage: "unix_ms('Europe/Berlin')",
		takes: typeDate | typeTime | typeText, wants: "a date or a timestamp", gives: typeInteger, bind: bindUnix(1000)},

	{name: "json", params: []param{{text: true}}, usage: "json('a.b[0]')", takes: typeJSON | typeText, wants: "a JSON document", gives: allTexts &^ typeBytes, bind: bindJSON},
	filterElements,
	filterDefault,
}

const wantsAny = "what has one text"

// filterElements gives each element of an array, or of a list in a text whose elements stand apart by its argument. The
// renderer does it, since it gives many values.
var filterElements = &filterType{name: "elements", params: []param{{text: true, optional: true}}, usage: "elements(',')",
	takes: typeArray | typeJSON | typeText | typeLabel, wants: "an array, or a list in a text", gives: allTexts &^ typeBytes, bind: bindElements}

// filterDefault gives its argument for NULL, and hands on everything else.
var filterDefault = &filterType{name: "default", params: []param{{text: true}}, usage: "default('none')",
	takes: anyType, gives: 0, raw: true, bind: plain(nil)}

// filterUUID is the one whose column may be known to have another length.
var filterUUID = &filterType{name: "uuid", takes: typeText | typeLabel | typeBytes, wants: "16 bytes or the text of a UUID", gives: typeLabel, raw: true, bind: plain(uuid)}
