//! Runs a plan on a faster clock.
