//! grove
