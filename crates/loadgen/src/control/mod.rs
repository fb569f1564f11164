//! The controller, the workers, and what they say to one another.

pub mod message;
