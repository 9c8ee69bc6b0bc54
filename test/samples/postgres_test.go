package samples

// What testdata/debezium-samples/postgres.sql did. A column that is NULL gives no key, nor does one that the record lacks: users
// and listings have the default replica identity, so that a before image is the primary key.
var postgres = wanted{
	// insert into users values(1,'a@x.io','Zoé',1,'2026-11-30 01:02:03.123456+00'): a zone is shown as +00, which is %2B00.
	{record: "users r 1", text: "user:1 user:email:a@x.io user:name:Zoé user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456%2B00"},
	// update users set email='b@x.io' where id=1: there is no before image, so the old address cannot be known.
	{record: "users u 1", text: "user:1 user:email:b@x.io user:name:Zoé user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456%2B00"},
	// update users set id=5 where id=1: the old key, its tombstone, and the whole row under the new one.
	{record: "users d 1", text: "user:1"},
	{record: "users tombstone 1", text: "user:1"},
	{record: "users c 5", text: "user:5 user:email:b@x.io user:name:Zoé user:version:1 user:at:2026-11-30%2001%3A02%3A03.123456%2B00"},
	// delete from users where id=5.
	{record: "users d 5", text: "user:5"},
	{record: "users tombstone 5", text: "user:5"},
	// insert into users values(3,'c@x.io','n',1,null,'+1'), after phone was added.
	{record: "users c 3", text: "user:3 user:email:c@x.io user:phone:+1 user:name:n user:version:1"},

	// insert into listings values(7,1,'A-1',10.5,'live'): a numeric(12,4) shows four digits.
	{record: "listings r 7/1", text: "listing:7:1 listing:of:7 listing:sku:A-1 listing:price:10.5000 listing:status:live"},
	// update listings set org_id=9 where org_id=7. The delete has sku "", which is not the row's but stands for a value that the log
	// did not have, since the column is not null.
	{record: "listings d 7/1", text: "listing:7:1 listing:of:7"},
	{record: "listings tombstone 7/1", text: "listing:7:1 listing:of:7"},
	{record: "listings c 9/1", text: "listing:9:1 listing:of:9 listing:sku:A-1 listing:price:10.5000 listing:status:live"},
	// truncate shop.listings writes no record.

	// insert into shop.bigrow values(1,'a',repeat('0123456789',1000)): sha256sum says 4c207598af7a20db….
	{record: "bigrow c 1", text: "big:1 big:small:a big:big:4c207598af7a20db"},
	// update shop.bigrow set small='b' where id=1: big was not touched and is not in the record.
	{record: "bigrow u 1", text: "big:1 big:small:b"},

	// insert into zoo values(1,true,-5,9223372036854775807,'NaN','12345678901234567890.0123456789',1.5,0.1,'ab','vé','tx','\x00ff10',
	// '6f1ed002-ab5c-4d8e-9c2b-0123456789ab','2026-02-28','2026-02-28 23:59:59.000001','2026-02-28 23:59:59+02','12:34:56.789','1 day 02:00',
	// '{"b":1, "a":2}','{"b":1, "a":2}','{1,2,null}','10.0.0.1/8','12.34',b'101',repeat(md5('x'),400)), then update shop.zoo set n='123.4500'
	// before the snapshot. Neither an interval nor money says in Debezium what SELECT shows: no key. big is 400 times
	// 9dd4e461268c8034f5c8564e155c67a6, whose sha256sum is 4d25664f3992c116….
	{record: "zoo r 1", format: "plain", text: zoo + " zoo:v:vé zoo:n:123.4500"},
	// A numeric without a scale loses its last zeros in Debezium's precise mode, in which the samples with a schema were written.
	{record: "zoo r 1", format: "schema", text: zoo + " zoo:v:vé zoo:n:123.45"},
	// update zoo set v='changed' where id=1: its replica identity is full, so that both values are there.
	{record: "zoo u 1", format: "plain", text: zoo + " zoo:v:vé zoo:v:changed zoo:n:123.4500"},
	{record: "zoo u 1", format: "schema", text: zoo + " zoo:v:vé zoo:v:changed zoo:n:123.45"},

	// select pg_logical_emit_message(true,'cache','user:1:v3'): the key itself.
	{record: "message m cache", text: "user:1:v3"},

	{record: "transaction", ignored: "transaction", times: 2},
	{record: "heartbeat", ignored: "heartbeat", times: 2},
}

// zoo is what the statements left as it was. '2026-02-28 23:59:59+02' is 21:59:59 in UTC; a char(5) is padded; {1,2,null} is shown
// as {1,2,NULL}.
const zoo = `zoo:1 zoo:b:t zoo:i2:-5 zoo:i8:9223372036854775807 zoo:n2:12345678901234567890.0123456789 zoo:c:ab%20%20%20 zoo:t:tx zoo:by:00ff10
	zoo:u:6f1ed002-ab5c-4d8e-9c2b-0123456789ab zoo:dt:2026-02-28 zoo:ts:2026-02-28%2023%3A59%3A59.000001 zoo:tstz:2026-02-28%2021%3A59%3A59%2B00
	zoo:tm:12:34:56.789 zoo:arr:{1,2,NULL} zoo:inet:10.0.0.1/8 zoo:bt:101 zoo:big:4d25664f3992c116`
