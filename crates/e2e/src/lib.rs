//! Whole-system tests of Throng: plays, real clients, cluster simulations.
