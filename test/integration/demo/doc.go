// Package demo plays invalidator demo on the real services of ./dev up, and looks that it leaves nothing behind. The embedded
// demo is tested beside its code.
package demo
