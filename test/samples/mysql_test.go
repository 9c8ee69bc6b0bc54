package samples

// What testdata/debezium-samples/mysql.sql did. A column that is NULL gives no key.
var mysql = wanted{
	// insert into users values(1,'a@x.io','Zoë',1,'2026-11-30 01:02:03.123456'): the column phone was not there yet.
	{record: "users r 1", text: "user:1 user:email:a@x.io user:name:Zoë user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456"},
	// (18446744073709551615,'max@x.io','max',2,null): Debezium writes the id as -1.
	{record: "users r -1", text: "user:18446744073709551615 user:email:max@x.io user:name:max user:version:2"},
	// update users set email='b@x.io' where id=1: both addresses.
	{record: "users u 1", text: "user:1 user:email:a@x.io user:email:b@x.io user:name:Zoë user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456"},
	// insert into users(id,email,phone,name,version,updated_at) values(3,'c@x.io','+1','n',1,null), after phone was added.
	{record: "users c 3", text: "user:3 user:email:c@x.io user:phone:+1 user:name:n user:version:1"},
	// delete from users where id=1: as the update left it; the phone is NULL.
	{record: "users d 1", text: "user:1 user:email:b@x.io user:name:Zoë user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456"},
	// Its tombstone knows the primary key alone.
	{record: "users tombstone 1", text: "user:1"},

	// insert into listings(id,org_id,sku,price,status,tags) values(1,7,'A-1',10.5,'live','a,c'): a decimal(12,4) shows four digits.
	{record: "listings r 7/1", text: "listing:7:1 listing:of:7 listing:sku:A-1 listing:price:10.5000 listing:status:live listing:tags:a,c"},
	// (2,7,'A-2',0.0001,'draft',''): an empty set is a text, not NULL.
	{record: "listings r 7/2", text: "listing:7:2 listing:of:7 listing:sku:A-2 listing:price:0.0001 listing:status:draft listing:tags:"},
	// update listings set org_id=9 where id=1: a delete of the old key with the whole row …
	{record: "listings d 7/1", text: "listing:7:1 listing:of:7 listing:sku:A-1 listing:price:10.5000 listing:status:live listing:tags:a,c"},
	// … its tombstone, with the two columns of the primary key …
	{record: "listings tombstone 7/1", text: "listing:7:1 listing:of:7"},
	// … and a create of the new key.
	{record: "listings c 9/1", text: "listing:9:1 listing:of:9 listing:sku:A-1 listing:price:10.5000 listing:status:live listing:tags:a,c"},
	// update listings set price=11 where id=2: both prices.
	{record: "listings u 7/2", text: "listing:7:2 listing:of:7 listing:sku:A-2 listing:price:0.0001 listing:price:11.0000 listing:status:draft listing:tags:"},
	// truncate table listings writes no record to the table's topic.

	// insert into zoo values(1,255,-128,1,18446744073709551615,'12345678901234567890.0123456789',1.5,0.1,'ab','vé','tx',x'00ff10',
	// x'00112233445566778899aabbccddeeff',b'1',b'101010101010','2026-02-28','2026-02-28 23:59:59','2026-02-28 23:59:59.000001',
	// '2026-02-28 12:00:00','-12:34:56.789',2026,'{"b":1,"a":[1,2.50,"x"]}','y,z','p,q',null): 101010101010 is 2048+512+128+32+8+2 = 2730.
	{record: "zoo r 1", text: `zoo:1 zoo:u8:255 zoo:i8:-128 zoo:b1:1 zoo:u64:18446744073709551615 zoo:d:12345678901234567890.0123456789 zoo:c:ab zoo:v:vé zoo:t:tx
		zoo:bl:00ff10 zoo:bin16:00112233445566778899aabbccddeeff zoo:bi:1 zoo:bi12:2730 zoo:dt:2026-02-28 zoo:dtm:2026-02-28%2023%3A59%3A59
		zoo:dtm6:2026-02-28%2023%3A59%3A59.000001 zoo:ts:2026-02-28%2012%3A00%3A00 zoo:tm:-12:34:56.789 zoo:y:2026 zoo:e:y,z zoo:s:p,q`},

	{record: "transaction", ignored: "transaction", times: 2},
	{record: "schema changes", ignored: "ddl", times: 3},
	{record: "heartbeat", ignored: "heartbeat", times: 2},
}
