//! Product with the state weights, computed at every step.

use rayon::prelude::*;

use crate::{
    dispatch::vectorized,
    math::{add_products, fma, total_of_products},
    matmul::{Layout, NR, PackedB},
    recurrent::steps::Steps,
};

/// Maximum number of rows beyond the first of each step, summed over the steps, for which the weights are not packed but read
/// once per row. Packing them into panels, which are read once for all rows of a step, costs about as much as this number of
/// reads.
const GEMV_ROWS: usize = 4;

/// Division of a layer's work among threads.
pub(crate) struct Plan {
    /// Sequences of each task, which runs all steps independently.
    pub groups: Vec<std::ops::Range<usize>>,
    /// If true, there is one group, and the threads share each of its products: then no thread reads all the weights, but the
    /// threads synchronise at every step. Does not depend on the number of threads, because shared products have another
    /// summation order.
    pub shared: bool,
}

impl Plan {
    /// Plans a layer with `weights` recurrent weights.
    pub fn new(steps: &Steps, weights: usize) -> Self {
        let threads = rayon::current_num_threads();
        let batch = steps.batch();
        // Synchronisation costs some microseconds. That is little if a step takes a hundred, and less than it saves if a step
        // has many weights and few rows.
        let long = batch * weights >= 1 << 26;
        let few = batch <= 6 && weights >= 1 << 18;
        let shared = long || few;
        let count = if shared { 1 } else { threads.min(batch) };
        Self { groups: steps.groups(count), shared }
    }

    /// Runs a task per group, with the group's item of `tasks`.
    pub fn run<T: Send>(&self, tasks: Vec<T>, run: impl Fn(T) + Sync + Send) {
        match tasks.len() {
            1 => tasks.into_iter().for_each(run),
            _ => tasks.into_par_iter().for_each(run),
        }
    }
}

/// A matrix `[depth, columns]` that is repeatedly multiplied by rows.
pub(crate) struct Product<'a> {
    depth: usize,
    columns: usize,
    shared: bool,
    form: Form<'a>,
}

enum Form<'a> {
    Plain(&'a [f32], Layout),
    Packed(PackedB),
}

impl<'a> Product<'a> {
    /// Prepares the matrix for products with the rows of all steps.
    pub fn new(w: &'a [f32], depth: usize, columns: usize, layout: Layout, steps: &Steps, plan: &Plan) -> Self {
        let plain = steps.rows() - steps.len() <= GEMV_ROWS;
        let form = if plain { Form::Plain(w, layout) } else { Form::Packed(PackedB::new(w, depth, columns, layout)) };
        Self { depth, columns, shared: plan.shared, form }
    }

    /// Adds the product of `rows` rows of `a` to `c`. The strides are distances from one row to the next, in elements.
    pub fn add(&self, a: &[f32], a_stride: usize, rows: usize, c: &mut [f32], c_stride: usize) {
        // A thread gets whole panels, and enough of them to justify waking it.
        let panels = self.columns.div_ceil(NR);
        let most = (rows * self.depth * self.columns) >> 15;
        if !self.shared || most < 2 {
            return self.add_part(0, panels, a, a_stride, rows, c, c_stride);
        }
        // Even with one thread, the product is computed separately and then added, so that the results do not depend on the
        // number of threads.
        let share = panels.div_ceil(rayon::current_num_threads().min(most));
        let stride = share * NR;
        let mut parts = vec![0.0; panels.div_ceil(share) * rows * stride];
        parts.par_chunks_mut(rows * stride).enumerate().for_each(|(i, part)| {
            self.add_part(i * share, panels.min((i + 1) * share), a, a_stride, rows, part, stride);
        });
        for (i, part) in parts.chunks_exact(rows * stride).enumerate() {
            for (row, part) in part.chunks_exact(stride).enumerate() {
                let width = stride.min(self.columns - i * stride);
                for (c, part) in c[row * c_stride + i * stride..][..width].iter_mut().zip(part) {
                    *c += part;
                }
            }
        }
    }

    /// Adds the columns of the panels `from..to`.
    #[allow(clippy::too_many_arguments)]
    fn add_part(
        &self,
        from: usize,
        to: usize,
        a: &[f32],
        a_stride: usize,
        rows: usize,
        c: &mut [f32],
        c_stride: usize,
    ) {
        match &self.form {
            Form::Packed(panels) => panels.add(from, to, a, a_stride, rows, c, c_stride),
            Form::Plain(w, layout) => {
                let (first, end) = (from * NR, self.columns.min(to * NR));
                for row in 0..rows {
                    let (a, c) = (&a[row * a_stride..][..self.depth], &mut c[row * c_stride..][..end - first]);
                    if layout.transposed {
                        add_dots(&w[first * layout.stride..], layout.stride, a, c);
                    } else {
                        add_scaled(&w[first..], layout.stride, a, c);
                    }
                }
            }
        }
    }
}

/// Number of lanes of a sum.
const LANES: usize = 8;

vectorized! {
    /// Adds the dot product of `a` with each row of `w` to `c`.
    fn add_dots<FUSED>(w: &[f32], stride: usize, a: &[f32], c: &mut [f32]) {
        let (chunks, rest) = a.as_chunks::<LANES>();
        let (count, n) = (chunks.len(), a.len());
        let row = |i: usize| {
            let row = &w[i * stride..][..n];
            (&row.as_chunks::<LANES>().0[..count], &row[count * LANES..])
        };
        let (eights, others) = c.as_chunks_mut::<8>();
        let done = eights.len() * 8;
        for (i, c) in eights.iter_mut().enumerate() {
            // Eight rows at once keep enough accumulators busy.
            macro_rules! eight {
                ($($number:literal $w:ident $rest:ident $sum:ident)*) => {
                    $(let ($w, $rest) = row(i * 8 + $number);)*
                    $(let mut $sum = [0.0; LANES];)*
                    for k in 0..count {
                        $($sum = add_products::<FUSED, LANES>($sum, &$w[k], &chunks[k]);)*
                    }
                    $(c[$number] += total_of_products::<FUSED, LANES>($sum, $rest, rest);)*
                };
            }
            eight!(0 w0 r0 s0 1 w1 r1 s1 2 w2 r2 s2 3 w3 r3 s3 4 w4 r4 s4 5 w5 r5 s5 6 w6 r6 s6 7 w7 r7 s7);
        }
        for (i, c) in others.iter_mut().enumerate() {
            let (w, w_rest) = row(done + i);
            let mut sum = [0.0; LANES];
            for k in 0..count {
                sum = add_products::<FUSED, LANES>(sum, &w[k], &chunks[k]);
            }
            *c += total_of_products::<FUSED, LANES>(sum, w_rest, rest);
        }
    }
}

/// Adds the rows of `w`, `stride` apart, each multiplied by an element of `a`.
fn add_scaled(w: &[f32], stride: usize, a: &[f32], c: &mut [f32]) {
    let n = c.len();
    let (fours, rest) = a.as_chunks::<4>();
    for (i, a) in fours.iter().enumerate() {
        let w = |k: usize| &w[(i * 4 + k) * stride..][..n];
        add_four(a, w(0), w(1), w(2), w(3), c);
    }
    for (i, &a) in rest.iter().enumerate() {
        add_one(a, &w[(fours.len() * 4 + i) * stride..][..n], c);
    }
}

vectorized! {
    fn add_four<FUSED>(a: &[f32; 4], w0: &[f32], w1: &[f32], w2: &[f32], w3: &[f32], c: &mut [f32]) {
        let n = c.len();
        let (w0, w1, w2, w3) = (&w0[..n], &w1[..n], &w2[..n], &w3[..n]);
        for j in 0..n {
            let low = fma::<FUSED>(a[1], w1[j], fma::<FUSED>(a[0], w0[j], c[j]));
            c[j] = low + fma::<FUSED>(a[3], w3[j], a[2] * w2[j]);
        }
    }
}

vectorized! {
    fn add_one<FUSED>(a: f32, w: &[f32], c: &mut [f32]) {
        let w = &w[..c.len()];
        for j in 0..c.len() {
            c[j] = fma::<FUSED>(a, w[j], c[j]);
        }
    }
}
