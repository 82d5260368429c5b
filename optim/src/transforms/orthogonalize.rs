use burn::tensor::Tensor;
use grove_backend::{Backend, matmul};

/// Normalisation of matrices, which the Newton–Schulz iteration needs to converge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preconditioning {
    /// Divides by the Frobenius norm. Jordan et al. (2024).
    #[default]
    Frobenius,
    /// Divides each row by the square root of the sum of absolute values in that row of `x x'`, in the first iteration.
    /// Needs no additional matrix product, and leaves larger singular values. Boissin et al., "Turbo-Muon" (2025).
    Aol,
    /// Divides by the square root of the Frobenius norm of `x x'`, in the first iteration.
    Schatten,
}

/// Moves the singular values of matrices towards 1 and keeps their singular vectors. Each triple of coefficients is one
/// Newton–Schulz iteration, `a x + b (x x') x + c (x x')^2 x`.
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
    // `x x'` is smaller if x has fewer rows than columns.
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

/// Lower bound of the norms in the first iteration, as in optax.
const FIRST_EPS: f64 = 1e-8;

/// Frobenius norm of each matrix, `[matrices, 1, 1]`.
fn frobenius<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    (x.clone() * x).sum_dim(1).sum_dim(2).sqrt()
}
