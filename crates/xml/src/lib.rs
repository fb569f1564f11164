//! xml.
