//! Every transformation, optimizer, wrapper and schedule against optax. Fixture: tools/fixtures/optim.py.
#![recursion_limit = "256"]

#[path = "../../../engine/backend/tests/common/mod.rs"]
#[macro_use]
mod common;

mod config;
mod fixture;
mod laws;
mod layouts;
mod optimizers;
mod parts;
mod schedules;
mod transforms;
mod wrappers;
