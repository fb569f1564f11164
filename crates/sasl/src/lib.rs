//! sasl.
