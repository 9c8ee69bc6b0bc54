package envelope

// WriteAvroAsJSON makes d write the records of each schema that it knows as JSON whole, and read that: what reads envelopes where they
// stand must say the same.
func WriteAvroAsJSON(d *Decoder) {
	for _, s := range *d.avro.m.Load() {
		s.envelope = nil
	}
}

// ReadsAvroWhereItStands reports whether d has read an envelope's schema, and reads its records so.
func ReadsAvroWhereItStands(d *Decoder) bool {
	if m := d.avro.m.Load(); m != nil {
		for _, s := range *m {
			if s.envelope != nil {
				return true
			}
		}
	}
	return false
}

// ErrAvroBomb is for records that claim more than they hold.
var ErrAvroBomb = errAvroBomb
