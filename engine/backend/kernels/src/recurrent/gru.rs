use crate::{
    dispatch::{in_pool, vectorized},
    math::{sigmoid, tanh},
    matmul::Layout,
    recurrent::product::{Plan, Product},
    recurrent::steps::Steps,
};

/// Position of a GRU's reset gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum GruReset {
    /// After the product with the state weights, as in PyTorch and cuDNN: `n = tanh(x_n + r (W_hn h + b_hn))`.
    #[default]
    After,
    /// Before the product: `n = tanh(x_n + W_hn (r h) + b_hn)`, as in Cho et al., 2014.
    Before,
}

/// Runs a GRU layer over packed sequences, in one direction, as `torch.nn.GRU`.
///
/// `b` is the number of sequences, `s` the number of packed rows, `n` the number of hidden units.
///
/// - `w_hh` `[3 n, n]`: state weights; gates in the order reset, update, new.
/// - `b_hn` `[n]`: state bias of the new gate; the other biases are part of `gates`.
/// - `gates` `[s, 3 n]`: projected inputs with their biases; overwritten with the gates after their activations.
/// - `h` `[b, n]`: initial states; overwritten with the states after each sequence's last step.
/// - `output` `[s, n]`: receives the hidden states.
/// - `saved` `[s, n]`: receives the residual of [`gru_backward`](super::gru_backward): `W_hn h + b_hn`, or `r h` for
///   [`GruReset::Before`].
///
/// # Panics
/// If the size of a slice does not match.
#[allow(clippy::too_many_arguments)]
pub fn gru(
    steps: &Steps,
    reset: GruReset,
    w_hh: &[f32],
    b_hn: &[f32],
    gates: &mut [f32],
    h: &mut [f32],
    output: &mut [f32],
    saved: &mut [f32],
) {
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 3) else { return };
    assert_eq!(b_hn.len(), n);
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let layout = Layout { stride: n, transposed: true };
        let (w_rz, w_n) = w_hh.split_at(2 * n * n);
        let product_rz = Product::new(w_rz, n, 2 * n, layout, steps, &plan);
        let product_n = Product::new(w_n, n, n, layout, steps, &plan);
        let states = steps.split_state(&plan.groups, n, h);
        let rows = steps.split(&plan.groups, 3 * n, gates).into_iter().zip(steps.split(&plan.groups, n, output));
        let tasks = states.into_iter().zip(rows).zip(steps.split(&plan.groups, n, saved)).collect();
        plan.run(tasks, |((h, (mut gates, mut output)), mut saved)| {
            for step in steps.order() {
                let (gates, output, saved) = (&mut *gates[step], &mut *output[step], &mut *saved[step]);
                let rows = output.len() / n;
                if rows == 0 {
                    continue;
                }
                let h = &mut h[..rows * n];
                product_rz.add(h, n, rows, gates, 3 * n);
                match reset {
                    GruReset::After => {
                        saved.chunks_exact_mut(n).for_each(|saved| saved.copy_from_slice(b_hn));
                        product_n.add(h, n, rows, saved, n);
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let at = row * n..(row + 1) * n;
                            let (r, z_n) = gates.split_at_mut(n);
                            let (z, new) = z_n.split_at_mut(n);
                            after_row(r, z, new, &saved[at.clone()], &h[at.clone()], &mut output[at]);
                        }
                    }
                    GruReset::Before => {
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let at = row * n..(row + 1) * n;
                            before_row(&mut gates[..n], &h[at.clone()], &mut saved[at]);
                        }
                        product_n.add(saved, n, rows, &mut gates[2 * n..], 3 * n);
                        for (row, gates) in gates.chunks_exact_mut(3 * n).enumerate() {
                            let at = row * n..(row + 1) * n;
                            let (z, new) = gates[n..].split_at_mut(n);
                            new_row(z, new, b_hn, &h[at.clone()], &mut output[at]);
                        }
                    }
                }
                h.copy_from_slice(output);
            }
        });
    });
}

// The loops are over arguments of a function that is not inlined, so that the compiler knows that they do not alias.
vectorized! {
    fn after_row<FUSED>(r: &mut [f32], z: &mut [f32], new: &mut [f32], hidden: &[f32], h: &[f32], output: &mut [f32]) {
        let n = output.len();
        let (r, z, new, hidden, h) = (&mut r[..n], &mut z[..n], &mut new[..n], &hidden[..n], &h[..n]);
        for j in 0..n {
            r[j] = sigmoid::<FUSED>(r[j]);
            z[j] = sigmoid::<FUSED>(z[j]);
            new[j] = tanh::<FUSED>(new[j] + r[j] * hidden[j]);
            output[j] = new[j] + z[j] * (h[j] - new[j]);
        }
    }
}

vectorized! {
    fn before_row<FUSED>(r: &mut [f32], h: &[f32], reset: &mut [f32]) {
        let n = reset.len();
        let (r, h) = (&mut r[..n], &h[..n]);
        for j in 0..n {
            r[j] = sigmoid::<FUSED>(r[j]);
            reset[j] = r[j] * h[j];
        }
    }
}

vectorized! {
    fn new_row<FUSED>(z: &mut [f32], new: &mut [f32], bias: &[f32], h: &[f32], output: &mut [f32]) {
        let n = output.len();
        let (z, new, bias, h) = (&mut z[..n], &mut new[..n], &bias[..n], &h[..n]);
        for j in 0..n {
            z[j] = sigmoid::<FUSED>(z[j]);
            new[j] = tanh::<FUSED>(new[j] + bias[j]);
            output[j] = new[j] + z[j] * (h[j] - new[j]);
        }
    }
}
