use burn::tensor::Tensor;
use grove_backend::{Backend, matmul};

/// How matrices are scaled before they are orthogonalised, so that the iteration converges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preconditioning {
    /// Divided by the Frobenius norm. Jordan et al. (2024).
    #[default]
    Frobenius,
    /// Each row by the root of the sum of the absolute values in its row of `x x'`, in the first step, which costs
    /// nothing more and leaves singular values larger. Boissin et al., "Turbo-Muon" (2025).
    Aol,
    /// Divided by the root of the Frobenius norm of `x x'`, in the first step.
    Schatten,
}

/// Brings the singular values of matrices near to 1 and keeps their singular vectors, by a step of the Newton–Schulz
/// iteration `a x + b (x x') x + c (x x')^2 x` for each triple of coefficients.
///
/// # Shapes
/// - x `[matrices, m, n]`
/// - output `[matrices, m, n]`
pub fn orthogonalize<B: Backend>(
    x: Tensor<B, 3>,
    coefficients: &[[f64; 3]],
    preconditioning: Preconditioning,
    eps: f64,
) -> Tensor<B, 3> {
    let [_, m, n] = x.dims();
    // x x' is the smaller the fewer rows there are.
    let tall = m > n;
    let mut x = if tall { x.swap_dims(1, 2) } else { x };
    if preconditioning == Preconditioning::Frobenius {
        let norm = frobenius(x.clone()).add_scalar(eps);
        x = x / norm;
    }
    for (i, &[a, b, c]) in coefficients.iter().enumerate() {
        let mut product = matmul(x.clone(), x.clone().swap_dims(1, 2));
        match preconditioning {
            Preconditioning::Aol if i == 0 => {
                let rows = product.clone().abs().sum_dim(2).clamp_min(FIRST_EPS).sqrt().recip();
                x = x * rows.clone();
                product = product * rows.clone() * rows.swap_dims(1, 2);
            }
            Preconditioning::Schatten if i == 0 => {
                let norm = frobenius(product.clone()).clamp_min(FIRST_EPS);
                x = x / norm.clone().sqrt();
                product = product / norm;
            }
            _ => {}
        }
        let polynomial = matmul(product.clone(), product.clone()).mul_scalar(c) + product.mul_scalar(b);
        x = matmul(polynomial, x.clone()) + x.mul_scalar(a);
    }
    if tall { x.swap_dims(1, 2) } else { x }
}

/// What the first step's scales are at least, as in optax.
const FIRST_EPS: f64 = 1e-8;

/// `[matrices, 1, 1]`
fn frobenius<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    (x.clone() * x).sum_dim(1).sum_dim(2).sqrt()
}
