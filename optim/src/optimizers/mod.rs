//! Optimizers: chains of transformations. Names, options and defaults are optax's.

mod adafactor;
mod adam;
mod fused_adam;
mod large_batch;
mod lion;
mod muon;
mod rms;
mod sgd;

pub use adafactor::{Adafactor, AdafactorChain, adafactor};
pub use adam::{
    Adabelief, AdabeliefChain, Adam, AdamChain, Adamw, AdamwChain, Amsgrad, AmsgradChain, Radam, RadamChain, adabelief,
    adam, adamw, amsgrad, nadamw, radam,
};
pub use large_batch::{Lamb, LambChain, Lars, LarsChain, lamb, lars};
pub use lion::{Lion, LionChain, lion};
pub use muon::{Muon, MuonChain, muon};
pub use rms::{Adagrad, AdagradChain, Rmsprop, RmspropChain, RmspropScale, adagrad, rmsprop};
pub use sgd::{Sgd, SgdChain, sgd};
