-- The accounts and the database of the development servers, for MySQL and MariaDB alike.
-- app: tests and the demo, which create databases of their own. cdc: what a feeder needs, no more.
CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 'app-password';
GRANT ALL PRIVILEGES ON *.* TO 'app'@'%' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS 'cdc'@'%' IDENTIFIED BY 'cdc-password';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
/*M!100509 GRANT REPLICA MONITOR ON *.* TO 'cdc'@'%' */;
-- An anonymous user of localhost would be matched before app@% and refuse its password.
DROP USER IF EXISTS ''@'localhost';
CREATE DATABASE IF NOT EXISTS shop;
