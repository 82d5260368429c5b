use crate::{
    dispatch::{in_pool, vectorized},
    math::{sigmoid, tanh},
    matmul::{Layout, Matrix, matmul},
    recurrent::product::{Plan, Product},
    recurrent::steps::Steps,
};

/// Runs an LSTM layer over packed sequences, in one direction, as `torch.nn.LSTM`.
///
/// `b` is the number of sequences, `s` the number of packed rows, `n` the number of hidden units.
///
/// - `w_hh` `[4 n, n]`: state weights; gates in the order input, forget, cell, output.
/// - `gates` `[s, 4 n]`: projected inputs with both biases; overwritten with the gates after their activations.
/// - `h`, `c` `[b, n]`: initial states; overwritten with the states after each sequence's last step.
/// - `output` `[s, n]`: receives the hidden states; its previous contents are ignored.
/// - `cells` `[s, n]`: receives the cell states, a residual of [`lstm_backward`].
///
/// # Panics
/// If the size of a slice does not match.
pub fn lstm(
    steps: &Steps,
    w_hh: &[f32],
    gates: &mut [f32],
    h: &mut [f32],
    c: &mut [f32],
    output: &mut [f32],
    cells: Option<&mut [f32]>,
) {
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 4) else { return };
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let product = Product::new(w_hh, n, 4 * n, Layout { stride: n, transposed: true }, steps, &plan);
        let mut cells = cells.map(|cells| steps.split(&plan.groups, n, cells).into_iter());
        let mut tasks = Vec::new();
        let states = steps.split_state(&plan.groups, n, h).into_iter().zip(steps.split_state(&plan.groups, n, c));
        let rows = steps.split(&plan.groups, 4 * n, gates).into_iter().zip(steps.split(&plan.groups, n, output));
        for (state, rows) in states.zip(rows) {
            tasks.push((state, rows, cells.as_mut().and_then(Iterator::next)));
        }
        plan.run(tasks, |((h, c), (mut gates, mut output), mut cells)| {
            for step in steps.order() {
                let (gates, output) = (&mut *gates[step], &mut *output[step]);
                let rows = output.len() / n;
                product.add(h, n, rows, gates, 4 * n);
                forward(n, gates, c, output);
                h[..rows * n].copy_from_slice(output);
                if let Some(cells) = &mut cells {
                    cells[step].copy_from_slice(&c[..rows * n]);
                }
            }
        });
    });
}

/// Computes the gradients of [`lstm`].
///
/// - `gates`, `output`, `cells`: the results of [`lstm`]; `gates` is overwritten with the gradient of the projected inputs,
///   whose sum over the rows is the gradient of each bias.
/// - `h0`, `c0` `[b, n]`: initial states.
/// - `grad_output` `[s, n]`: gradient of the output.
/// - `grad_h`, `grad_c` `[b, n]`: gradients of the final states; overwritten with those of the initial states.
/// - `grad_w_hh` `[4 n, n]`: receives the gradient of the weights, if `Some`.
///
/// # Panics
/// If the size of a slice does not match.
#[allow(clippy::too_many_arguments)]
pub fn lstm_backward(
    steps: &Steps,
    w_hh: &[f32],
    gates: &mut [f32],
    output: &[f32],
    cells: &[f32],
    h0: &[f32],
    c0: &[f32],
    grad_output: &[f32],
    grad_h: &mut [f32],
    grad_c: &mut [f32],
    grad_w_hh: Option<&mut [f32]>,
) {
    assert!(output.len() == cells.len() && output.len() == grad_output.len() && h0.len() == c0.len());
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 4) else {
        return grad_w_hh.into_iter().for_each(|grad| grad.fill(0.0));
    };
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let product = Product::new(w_hh, 4 * n, n, Layout { stride: n, transposed: false }, steps, &plan);
        let states =
            steps.split_state(&plan.groups, n, grad_h).into_iter().zip(steps.split_state(&plan.groups, n, grad_c));
        let rows = steps.split(&plan.groups, 4 * n, gates);
        let tasks = plan.groups.iter().zip(states).zip(rows).collect();
        plan.run(tasks, |((group, (grad_h, grad_c)), mut gates)| {
            for step in steps.order().rev() {
                let at = steps.rows_at(step, group);
                let (grad_output, cells_now) =
                    (&grad_output[at.start * n..at.end * n], &cells[at.start * n..at.end * n]);
                let gates = &mut *gates[step];
                let (first, second) = steps.before(step, group, n, cells, c0);
                let cut = first.len();
                for (before, range) in [(first, 0..cut), (second, cut..at.len() * n)] {
                    backward(
                        n,
                        &mut gates[range.start * 4..range.end * 4],
                        &cells_now[range.clone()],
                        before,
                        &grad_output[range.clone()],
                        &mut grad_h[range.clone()],
                        &mut grad_c[range],
                    );
                }
                product.add(gates, 4 * n, at.len(), grad_h, n);
            }
        });
        if let Some(grad_w_hh) = grad_w_hh {
            let before = steps.gather_before(n, output, h0);
            let rows = steps.rows();
            matmul(Matrix::new(gates, rows, 4 * n).transpose(), Matrix::new(&before, rows, n), None, grad_w_hh);
        }
    });
}

/// Computes the gates and states of all rows of a step.
fn forward(n: usize, gates: &mut [f32], c: &mut [f32], h: &mut [f32]) {
    for ((gates, c), h) in gates.chunks_exact_mut(4 * n).zip(c.chunks_exact_mut(n)).zip(h.chunks_exact_mut(n)) {
        let (i_f, g_o) = gates.split_at_mut(2 * n);
        let ((i, f), (g, o)) = (i_f.split_at_mut(n), g_o.split_at_mut(n));
        forward_row(i, f, g, o, c, h);
    }
}

/// For all rows of a step: replaces the gates by their gradients, sets `grad_h` to 0, and replaces `grad_c` by the gradient
/// of the previous cell state.
fn backward(
    n: usize,
    gates: &mut [f32],
    c: &[f32],
    before: &[f32],
    grad_output: &[f32],
    grad_h: &mut [f32],
    grad_c: &mut [f32],
) {
    for (r, gates) in gates.chunks_exact_mut(4 * n).enumerate() {
        let (i_f, g_o) = gates.split_at_mut(2 * n);
        let ((i, f), (g, o)) = (i_f.split_at_mut(n), g_o.split_at_mut(n));
        let at = r * n..(r + 1) * n;
        let (c, before, grad_output) = (&c[at.clone()], &before[at.clone()], &grad_output[at.clone()]);
        backward_row(i, f, g, o, c, before, grad_output, &mut grad_h[at.clone()], &mut grad_c[at]);
    }
}

// The loops are over arguments of a function that is not inlined, so that the compiler knows that they do not alias.
vectorized! {
    fn forward_row<FUSED>(
        i: &mut [f32], f: &mut [f32], g: &mut [f32], o: &mut [f32], c: &mut [f32], h: &mut [f32],
    ) {
        let n = h.len();
        let (i, f, g, o, c) = (&mut i[..n], &mut f[..n], &mut g[..n], &mut o[..n], &mut c[..n]);
        for j in 0..n {
            i[j] = sigmoid::<FUSED>(i[j]);
            f[j] = sigmoid::<FUSED>(f[j]);
            g[j] = tanh::<FUSED>(g[j]);
            o[j] = sigmoid::<FUSED>(o[j]);
            c[j] = f[j] * c[j] + i[j] * g[j];
            h[j] = o[j] * tanh::<FUSED>(c[j]);
        }
    }
}

vectorized! {
    fn backward_row<FUSED>(
        i: &mut [f32], f: &mut [f32], g: &mut [f32], o: &mut [f32],
        c: &[f32], before: &[f32], grad_output: &[f32], grad_h: &mut [f32], grad_c: &mut [f32],
    ) {
        let n = c.len();
        let (i, f, g, o) = (&mut i[..n], &mut f[..n], &mut g[..n], &mut o[..n]);
        let (before, grad_output) = (&before[..n], &grad_output[..n]);
        let (grad_h, grad_c) = (&mut grad_h[..n], &mut grad_c[..n]);
        for j in 0..n {
            let (i_j, f_j, g_j, o_j) = (i[j], f[j], g[j], o[j]);
            let squashed = tanh::<FUSED>(c[j]);
            let dh = grad_output[j] + grad_h[j];
            let dc = grad_c[j] + dh * o_j * (1.0 - squashed * squashed);
            i[j] = dc * g_j * i_j * (1.0 - i_j);
            f[j] = dc * before[j] * f_j * (1.0 - f_j);
            g[j] = dc * i_j * (1.0 - g_j * g_j);
            o[j] = dh * squashed * o_j * (1.0 - o_j);
            grad_c[j] = dc * f_j;
            grad_h[j] = 0.0;
        }
    }
}
