use crate::{
    dispatch::{in_pool, vectorized},
    matmul::{Layout, Matrix, matmul, sum_rows},
    recurrent::gru::GruReset,
    recurrent::product::{Plan, Product},
    recurrent::steps::Steps,
};

/// Computes the gradients of [`gru`](crate::gru).
///
/// - `gates`, `saved`, `output`: the results of [`gru`](crate::gru); `gates` is overwritten with the gradient of the
///   projected inputs, and `saved` is overwritten.
/// - `h0` `[b, n]`: initial states.
/// - `grad_output` `[s, n]`: gradient of the output.
/// - `grad_h` `[b, n]`: gradient of the final states; overwritten with that of the initial states.
/// - `grad_w_hh` `[3 n, n]`: receives the gradient of the weights, if `Some`.
/// - `grad_b_hn` `[n]`: receives the gradient of the bias.
///
/// # Panics
/// If the size of a slice does not match.
#[allow(clippy::too_many_arguments)]
pub fn gru_backward(
    steps: &Steps,
    reset: GruReset,
    w_hh: &[f32],
    gates: &mut [f32],
    saved: &mut [f32],
    output: &[f32],
    h0: &[f32],
    grad_output: &[f32],
    grad_h: &mut [f32],
    grad_w_hh: Option<&mut [f32]>,
    grad_b_hn: &mut [f32],
) {
    assert!(output.len() == saved.len() && output.len() == grad_output.len() && h0.len() == grad_h.len());
    grad_b_hn.fill(0.0);
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 3) else {
        return grad_w_hh.into_iter().for_each(|grad| grad.fill(0.0));
    };
    assert_eq!(grad_b_hn.len(), n);
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let layout = Layout { stride: n, transposed: false };
        let (w_rz, w_n) = w_hh.split_at(2 * n * n);
        let product_rz = Product::new(w_rz, 2 * n, n, layout, steps, &plan);
        let product_n = Product::new(w_n, n, n, layout, steps, &plan);
        let before = steps.gather_before(n, output, h0);
        let states = steps.split_state(&plan.groups, n, grad_h);
        let rows = steps.split(&plan.groups, 3 * n, gates).into_iter().zip(steps.split(&plan.groups, n, saved));
        let tasks = plan.groups.iter().zip(states).zip(rows).collect();
        plan.run(tasks, |((group, grad_h), (mut gates, mut saved))| {
            let mut grad_reset = Vec::new();
            for step in steps.order().rev() {
                let at = steps.rows_at(step, group);
                let rows = at.len();
                if rows == 0 {
                    continue;
                }
                let (grad_output, before) = (&grad_output[at.start * n..at.end * n], &before[at.start * n..at.end * n]);
                let (gates, saved, grad_h) = (&mut *gates[step], &mut *saved[step], &mut grad_h[..rows * n]);
                let each = |row: usize| row * n..(row + 1) * n;
                match reset {
                    GruReset::After => {
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let (r, z_n) = gates.split_at_mut(n);
                            let (z, new) = z_n.split_at_mut(n);
                            let (saved, grad_h) = (&mut saved[each(row)], &mut grad_h[each(row)]);
                            update_row(z, new, &before[each(row)], &grad_output[each(row)], grad_h);
                            after_row(r, new, saved);
                        }
                        product_n.add(saved, n, rows, grad_h, n);
                    }
                    GruReset::Before => {
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let (z, new) = gates[n..].split_at_mut(n);
                            update_row(z, new, &before[each(row)], &grad_output[each(row)], &mut grad_h[each(row)]);
                        }
                        grad_reset.clear();
                        grad_reset.resize(rows * n, 0.0);
                        product_n.add(&gates[2 * n..], 3 * n, rows, &mut grad_reset, n);
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let (grad_reset, grad_h) = (&grad_reset[each(row)], &mut grad_h[each(row)]);
                            before_row(&mut gates[..n], &before[each(row)], grad_reset, grad_h);
                        }
                    }
                }
                product_rz.add(gates, 3 * n, rows, grad_h, n);
            }
        });

        // The gradient of the new gate's weights uses the gradient after the reset gate, or the state after it.
        let rows = steps.rows();
        let new = Matrix { data: &gates[2 * n..], rows, columns: n, stride: 3 * n, transposed: false };
        let (new, state) = match reset {
            GruReset::After => (Matrix::new(saved, rows, n), &before[..]),
            GruReset::Before => (new, &saved[..]),
        };
        sum_rows(new, grad_b_hn);
        let Some(grad_w_hh) = grad_w_hh else { return };
        let (grad_rz, grad_n) = grad_w_hh.split_at_mut(2 * n * n);
        let r_z = Matrix { data: gates, rows, columns: 2 * n, stride: 3 * n, transposed: false };
        matmul(r_z.transpose(), Matrix::new(&before, rows, n), None, grad_rz);
        matmul(new.transpose(), Matrix::new(state, rows, n), None, grad_n);
    });
}

vectorized! {
    // Replaces the update gate and the new gate by their gradients, and `grad_h` by its direct contribution to the previous
    // state.
    fn update_row<FUSED>(z: &mut [f32], new: &mut [f32], before: &[f32], grad_output: &[f32], grad_h: &mut [f32]) {
        let n = grad_h.len();
        let (z, new, before, grad_output) = (&mut z[..n], &mut new[..n], &before[..n], &grad_output[..n]);
        for j in 0..n {
            let (z_j, new_j) = (z[j], new[j]);
            let dh = grad_output[j] + grad_h[j];
            z[j] = dh * (before[j] - new_j) * z_j * (1.0 - z_j);
            new[j] = dh * (1.0 - z_j) * (1.0 - new_j * new_j);
            grad_h[j] = dh * z_j;
        }
    }
}

vectorized! {
    // Replaces the reset gate and the hidden part of the new gate by their gradients.
    fn after_row<FUSED>(r: &mut [f32], grad_new: &[f32], hidden: &mut [f32]) {
        let n = hidden.len();
        let (r, grad_new) = (&mut r[..n], &grad_new[..n]);
        for j in 0..n {
            let r_j = r[j];
            r[j] = grad_new[j] * hidden[j] * r_j * (1.0 - r_j);
            hidden[j] = grad_new[j] * r_j;
        }
    }
}

vectorized! {
    // Replaces the reset gate by its gradient, and adds the gradient through the reset state to `grad_h`.
    fn before_row<FUSED>(r: &mut [f32], before: &[f32], grad_reset: &[f32], grad_h: &mut [f32]) {
        let n = grad_h.len();
        let (r, before, grad_reset) = (&mut r[..n], &before[..n], &grad_reset[..n]);
        for j in 0..n {
            let r_j = r[j];
            r[j] = grad_reset[j] * before[j] * r_j * (1.0 - r_j);
            grad_h[j] += grad_reset[j] * r_j;
        }
    }
}
