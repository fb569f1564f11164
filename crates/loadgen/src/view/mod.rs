//! The person in front of it: live figures on a terminal, plain lines elsewhere.
