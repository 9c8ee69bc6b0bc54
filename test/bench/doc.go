// Package bench measures, against the real services and the same work done by others in the same run, and prints figures.
// ./dev bench feed, run and replay run it. Nothing here decides whether a test passes: a goal that is missed is printed as missed.
package bench
