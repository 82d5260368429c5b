//! Rows of a batch that is being generated.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;

use super::Finish;

/// A row of the batch.
pub(super) struct Row {
    /// Tokens of the prompt, followed by the new ones.
    pub ids: Vec<u32>,
    pub prompt: usize,
    /// Maximum number of new tokens, and the reason for it.
    pub limit: (usize, Finish),
    pub finish: Option<Finish>,
}

/// Rows of the batch, and the conditions that end them.
pub(super) struct Rows<'a> {
    pub rows: Vec<Row>,
    pub ends: Vec<u32>,
    pub on_token: &'a mut dyn FnMut(usize, u32) -> bool,
}

impl Rows<'_> {
    pub(super) fn all_ended(&self) -> bool {
        self.rows.iter().all(|row| row.finish.is_some())
    }

    pub(super) fn ended(&self, i: usize) -> bool {
        self.rows[i].finish.is_some()
    }

    /// Adds a token to a row, or ends the row if it is an end token.
    pub(super) fn push(&mut self, i: usize, token: u32) {
        let row = &mut self.rows[i];
        if self.ends.contains(&token) {
            row.finish = Some(Finish::Stop);
            return;
        }
        row.ids.push(token);
        if !(self.on_token)(i, token) {
            row.finish = Some(Finish::Callback);
        } else if row.ids.len() - row.prompt == row.limit.0 {
            row.finish = Some(row.limit.1);
        }
    }
}

/// Returns the number of positions processed before a step: none before the first step, which processes the prompt.
pub(super) fn seen_before(prompt: usize, step: usize) -> usize {
    if step == 0 { 0 } else { prompt + step - 1 }
}

/// Creates a tensor `[rows, t]` from rows of equal length.
pub(super) fn int_tensor<B: Backend>(rows: &[Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let t = rows.first().map_or(0, Vec::len);
    let ids: Vec<i64> = rows.iter().flatten().map(|&id| i64::from(id)).collect();
    Tensor::from_data(TensorData::new(ids, [rows.len(), t]), device)
}

/// Copies the values of a floating-point tensor to the host.
pub(super) fn float_vec<B: Backend>(x: Tensor<B, 2>) -> Vec<f32> {
    let data = x.into_data();
    data.convert::<f32>().into_vec().unwrap_or_default()
}
