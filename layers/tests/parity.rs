//! Layers and their gradients against torch. Fixture: tools/fixtures/layers.py.
#![recursion_limit = "256"]

use burn::tensor::{Distribution, Int, Shape, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::{AttentionMask, Embedding, KvCache, LayerNorm, Linear, attend, loss::cross_entropy};
use grove_transform::value_and_grad_aux;
use grove_tree::{Array, Key, Tree, leaves};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

#[path = "../../backend/tests/common/mod.rs"]
#[macro_use]
mod common;
