//! Recurrent layers in f64, one sequence at a time, by the formulas of PyTorch's documentation.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Lstm,
    GruAfter,
    GruBefore,
    Tanh,
    Relu,
}

impl Kind {
    pub fn gates(self) -> usize {
        match self {
            Kind::Lstm => 4,
            Kind::GruAfter | Kind::GruBefore => 3,
            Kind::Tanh | Kind::Relu => 1,
        }
    }
}

pub struct Case {
    pub kind: Kind,
    pub n: usize,
    pub lengths: Vec<usize>,
    pub reverse: bool,
}

/// x, h0, c0, w, b_hn, or their gradients.
pub type Inputs = [Vec<f64>; 5];

impl Case {
    pub fn sizes(&self) -> Vec<usize> {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        (0..longest).map(|t| self.lengths.iter().filter(|&&length| length > t).count()).collect()
    }

    pub fn input_lens(&self) -> [usize; 5] {
        let (n, g, rows, batch) = (self.n, self.kind.gates(), self.lengths.iter().sum::<usize>(), self.lengths.len());
        [rows * g * n, batch * n, batch * n, g * n * n, n]
    }

    /// Returns the output of the packed rows, and the final states.
    pub fn forward(&self, [x, h0, c0, w, b]: &Inputs) -> [Vec<f64>; 3] {
        let (n, wide) = (self.n, self.n * self.kind.gates());
        let sizes = self.sizes();
        let (mut output, mut h_n, mut c_n) = (vec![0.0; x.len() / wide.max(1) * n], h0.clone(), c0.clone());
        for (row, &length) in self.lengths.iter().enumerate() {
            let (h, c) = (&mut h_n[row * n..][..n], &mut c_n[row * n..][..n]);
            for i in 0..length {
                let t = if self.reverse { length - 1 - i } else { i };
                let at = sizes[..t].iter().sum::<usize>() + row;
                let x = &x[at * wide..][..wide];
                let old = h.to_vec();
                let dot = |j: usize, h: &[f64]| w[j * n..][..n].iter().zip(h).map(|(w, h)| w * h).sum::<f64>();
                let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                let reset: Vec<f64> = match self.kind {
                    Kind::GruAfter | Kind::GruBefore => (0..n).map(|j| sigmoid(x[j] + dot(j, &old))).collect(),
                    _ => vec![],
                };
                let reset_h: Vec<f64> = reset.iter().zip(&old).map(|(r, h)| r * h).collect();
                for j in 0..n {
                    let gate = |g: usize| x[g * n + j] + dot(g * n + j, &old);
                    h[j] = match self.kind {
                        Kind::Lstm => {
                            c[j] = sigmoid(gate(1)) * c[j] + sigmoid(gate(0)) * gate(2).tanh();
                            sigmoid(gate(3)) * c[j].tanh()
                        }
                        Kind::GruAfter | Kind::GruBefore => {
                            let z = sigmoid(gate(1));
                            let new = match self.kind {
                                Kind::GruAfter => x[2 * n + j] + reset[j] * (dot(2 * n + j, &old) + b[j]),
                                _ => x[2 * n + j] + dot(2 * n + j, &reset_h) + b[j],
                            };
                            (1.0 - z) * new.tanh() + z * old[j]
                        }
                        Kind::Tanh => gate(0).tanh(),
                        Kind::Relu => gate(0).max(0.0),
                    };
                }
                output[at * n..][..n].copy_from_slice(h);
            }
        }
        [output, h_n, c_n]
    }
}

/// Returns values between -1 and 1 that f32 represents exactly.
pub fn values(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 44) as f64 / f64::from(1 << 19) - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

pub fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}
