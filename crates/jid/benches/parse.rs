//! Nanoseconds a parse.

fn main() {}
