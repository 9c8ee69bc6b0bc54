// Package feed tests, on the real services, what feeders write: every row version that a database committed lies on its
// table's topic, however often the feeder is killed, and stands there to the last digit.
package feed
