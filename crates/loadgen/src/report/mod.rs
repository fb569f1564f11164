//! What is kept of a run: the model, its JSON, the page for the reader, the comparison of two.

pub mod model;
