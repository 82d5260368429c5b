//! The rows that are being generated.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;

use super::Finish;

/// A row that is being generated.
pub(super) struct Row {
    /// Prompt and new tokens.
    pub ids: Vec<u32>,
    pub prompt: usize,
    /// Most new tokens, and why there are no more.
    pub limit: (usize, Finish),
    pub finish: Option<Finish>,
}

/// Rows that are being generated, and what ends them.
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

    /// Adds a token to a row, unless it ends it.
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

/// Number of positions that are read before a step: none before the first, which reads the prompt.
pub(super) fn seen_before(prompt: usize, step: usize) -> usize {
    if step == 0 { 0 } else { prompt + step - 1 }
}

/// Rows of equal length as a tensor, `[rows, t]`.
pub(super) fn int_tensor<B: Backend>(rows: &[Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let t = rows.first().map_or(0, Vec::len);
    let ids: Vec<i64> = rows.iter().flatten().map(|&id| i64::from(id)).collect();
    Tensor::from_data(TensorData::new(ids, [rows.len(), t]), device)
}

/// The numbers of a tensor of any floating-point type.
pub(super) fn float_vec<B: Backend>(x: Tensor<B, 2>) -> Vec<f32> {
    let data = x.into_data();
    data.convert::<f32>().into_vec().unwrap_or_default()
}
