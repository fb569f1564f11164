//! Tsung scenario files become plans.
