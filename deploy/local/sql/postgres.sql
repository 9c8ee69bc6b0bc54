-- The accounts and the database of the development clusters, Postgres 15 and 17 alike. Run once, by the superuser.
-- app: tests and the demo, which create databases of their own. cdc: a feeder, which makes its publication and its slot itself:
-- that takes CREATE on the database and ownership of the tables, here by membership in their owner.
SET password_encryption = 'scram-sha-256';
CREATE ROLE app LOGIN CREATEDB PASSWORD 'app-password';
CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc-password';
GRANT app TO cdc;
CREATE DATABASE shop OWNER app;
GRANT CREATE ON DATABASE shop TO cdc;
