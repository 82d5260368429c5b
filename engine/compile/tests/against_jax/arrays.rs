//! Array operations: shapes, slices, reductions, ordering and linear algebra.

use burn::tensor::{
    ElementConversion, IndexingUpdateOp, Int, Tensor, TensorData,
    grid::{self, GridOptions, IndexPos},
    linalg::{self, Norm},
    ops::PadMode,
    s,
    signal::{self, StftOptions},
};
use grove_backend::{Backend, ops};

pub fn flat<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    x.reshape([count])
}

fn joined<B: Backend, const D: usize>(parts: Vec<Tensor<B, D>>) -> Tensor<B, 1> {
    Tensor::cat(parts.into_iter().map(flat).collect(), 0)
}

pub fn ints<B: Backend, const D: usize>(values: impl Into<TensorData>) -> Tensor<B, D, Int> {
    Tensor::from_ints(values, &Default::default())
}

/// Functions of an array that is reshaped to `[2, 3]` or another shape.
pub fn shapes<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let a = x[0].clone();
    let m = || a.clone().reshape([2, 3]);
    let cube = || a.clone().reshape([2, 3, 2]);
    Some(match name {
        "reshape" => flat(a.reshape([3, 2]).transpose()),
        "flatten" => cube().flatten::<2>(1, 2).transpose().flatten(0, 1),
        "transpose" => flat(m().transpose()),
        "t" => flat(m().t()),
        "swap_dims" => flat(cube().swap_dims(0, 2)),
        "permute" => flat(cube().permute([2, 0, 1])),
        "movedim" => flat(cube().movedim(0, 2)),
        "flip" => flat(cube().flip([0, 2])),
        "squeeze" => flat(m().reshape([2, 1, 3]).squeeze::<2>().transpose()),
        "squeeze_dim" => flat(m().reshape([2, 1, 3]).squeeze_dim::<2>(1).transpose()),
        "squeeze_dims" => flat(m().reshape([1, 2, 1, 3]).squeeze_dims::<2>(&[0, 2]).transpose()),
        "unsqueeze" => flat(m().unsqueeze::<3>()),
        "unsqueeze_dim" => flat(m().unsqueeze_dim::<3>(1).swap_dims(0, 2)),
        "unsqueeze_dims" => flat(m().unsqueeze_dims::<4>(&[0, 2]).swap_dims(1, 3)),
        "roll" => flat(m().roll(&[1, 2], &[0, 1])),
        "roll_dim" => flat(m().roll_dim(1, 1)),
        "slice" => flat(m().slice([0..2, 1..3])),
        "slice by steps" => flat(cube().slice(s![.., 0..3;2, ..;-1])),
        "slice_dim" => flat(m().slice_dim(1, 0..2)),
        "slice_fill" => flat(m().slice_fill(s![0..1, 1..3], 0.5)),
        "narrow" => flat(m().narrow(1, 1, 2)),
        "chunk" => joined(m().chunk(2, 1).into_iter().rev().collect()),
        "split" => joined(m().split(2, 1).into_iter().rev().collect()),
        "split_with_sizes" => joined(m().split_with_sizes(vec![1, 2], 1).into_iter().rev().collect()),
        "iter_dim" => joined(m().iter_dim(1).collect()),
        "cat" => flat(Tensor::cat(vec![m(), m() * 2.0], 1)),
        "stack" => flat(Tensor::stack::<3>(vec![m(), m() * 2.0], 1)),
        "repeat" => flat(m().repeat(&[2, 2])),
        "repeat_dim" => flat(m().repeat_dim(1, 3)),
        "expand" => flat(a.reshape([6, 1]).expand([2, 6, 3])),
        "unfold" => flat(a.unfold::<2, _>(0, 3, 2)),
        "pad constant" => flat(m().pad((1, 2, 0, 1), PadMode::Constant(0.5))),
        "pad reflect" => flat(m().pad((1, 2, 0, 1), PadMode::Reflect)),
        "pad edge" => flat(m().pad((1, 2, 0, 1), PadMode::Edge)),
        "tril" => flat(m().tril(0)),
        "triu" => flat(m().triu(1)),
        "select" => flat(m().select(1, ints([2, 0, 2]))),
        "take" => flat(m().take::<2, 3>(1, ints([[2, 0], [1, 2]]))),
        "gather" => flat(m().gather(1, ints([[2, 0, 2, 1], [1, 1, 0, 0]]))),
        "gather_nd" => flat(m().gather_nd::<2, 1>(ints([[1, 2], [0, 0], [1, 2]]))),
        "detach" => a.clone().detach() * a,
        _ => return None,
    })
}

/// Functions of two arrays, reshaped to `[2, 3]` and `[2, 2]`.
pub fn updates<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let [a, b] = x else { return None };
    let (m, part) = (|| a.clone().reshape([2, 3]), || b.clone().reshape([2, 2]));
    let places = || ints([[0, 2], [1, 1]]);
    Some(match name {
        "slice_assign" => flat(m().slice_assign([0..2, 1..3], part())),
        "select_assign" => flat(m().select_assign(1, ints([2, 2]), part(), IndexingUpdateOp::Add)),
        "scatter" => flat(m().scatter(1, places(), part(), IndexingUpdateOp::Add)),
        "scatter_nd add" => {
            flat(m().scatter_nd::<2, 1>(ints([[0, 2], [1, 1], [1, 1], [0, 0]]), flat(part()), IndexingUpdateOp::Add))
        }
        "ops::dynamic_update_slice" => flat(ops::dynamic_update_slice(m(), part(), ints([1]), 1)),
        "ops::scatter set" => flat(ops::scatter(m(), 1, places(), part(), IndexingUpdateOp::Assign)),
        "ops::scatter mul" => flat(ops::scatter(m(), 1, places(), part(), IndexingUpdateOp::Mul)),
        "ops::scatter min" => flat(ops::scatter(m(), 1, places(), part(), IndexingUpdateOp::Min)),
        "ops::scatter max" => flat(ops::scatter(m(), 1, places(), part(), IndexingUpdateOp::Max)),
        "ops::select_assign set" => flat(ops::select_assign(m(), 1, ints([2, 0]), part(), IndexingUpdateOp::Assign)),
        "ops::select_assign mul" => flat(ops::select_assign(m(), 1, ints([2, 2]), part(), IndexingUpdateOp::Mul)),
        "ops::select_assign min" => flat(ops::select_assign(m(), 1, ints([2, 2]), part(), IndexingUpdateOp::Min)),
        "ops::select_assign max" => flat(ops::select_assign(m(), 1, ints([2, 2]), part(), IndexingUpdateOp::Max)),
        "ops::index_copy" => flat(ops::index_copy(m(), 1, ints([2, 0]), part())),
        "ops::concat" => flat(ops::concat(vec![part(), part() * 2.0], 1)),
        "ops::chunk" => joined(ops::chunk(m(), 3, 1).into_iter().rev().collect()),
        _ => return None,
    })
}

/// Sums, products, extrema and ordering of an array `[2, 3]`.
pub fn reductions<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let a = x[0].clone();
    let m = || a.clone().reshape([2, 3]);
    Some(match name {
        "sum" => m().sum(),
        "sum_dim" => flat(m().sum_dim(1)),
        "sum_dims" => flat(m().sum_dims(&[0, 1])),
        "sum_dims_squeeze" => m().sum_dims_squeeze::<1, _>(&[0]),
        "mean" => m().mean(),
        "mean_dim" => flat(m().mean_dim(0)),
        "mean_dims" => flat(m().mean_dims(&[0, 1])),
        "prod" => m().prod(),
        "prod_dim" => flat(m().prod_dim(1)),
        "prod_dims" => flat(m().prod_dims(&[0, 1])),
        "max" => m().max(),
        "max_dim" => flat(m().max_dim(1)),
        "max_dims" => flat(m().max_dims(&[0, 1])),
        "max_dim_with_indices" => flat(m().max_dim_with_indices(1).0),
        "max_abs" => m().max_abs(),
        "max_abs_dim" => flat(m().max_abs_dim(1)),
        "max_abs_dims" => flat(m().max_abs_dims(&[0, 1])),
        "min" => m().min(),
        "min_dim" => flat(m().min_dim(1)),
        "min_dims" => flat(m().min_dims(&[0, 1])),
        "min_dim_with_indices" => flat(m().min_dim_with_indices(1).0),
        "var" => flat(m().var(1)),
        "var_bias" => flat(m().var_bias(1)),
        "var_mean" => {
            let (variance, mean) = m().var_mean(1);
            joined(vec![variance, mean])
        }
        "var_mean_bias" => {
            let (variance, mean) = m().var_mean_bias(1);
            joined(vec![variance, mean])
        }
        "cov" => flat(m().cov(1, 1)),
        "median" => flat(m().median(1)),
        "median_with_indices" => flat(m().median_with_indices(1).0),
        "cumsum" => flat(m().cumsum(1)),
        "cumprod" => flat(m().cumprod(1)),
        "cummax" => flat(m().cummax(1)),
        "cummin" => flat(m().cummin(1)),
        "sort" => flat(m().sort(1)),
        "sort_descending" => flat(m().sort_descending(1)),
        "sort_with_indices" => flat(m().sort_with_indices(1).0),
        "sort_descending_with_indices" => flat(m().sort_descending_with_indices(1).0),
        "topk" => flat(m().topk(2, 1)),
        "topk of all" => flat(m().topk(3, 1)),
        "topk_with_indices" => flat(m().topk_with_indices(2, 1).0),
        "l0_norm" => flat(linalg::l0_norm(m(), 1)),
        "l1_norm" => flat(linalg::l1_norm(m(), 1)),
        "l2_norm" => flat(linalg::l2_norm(m(), 1)),
        "lp_norm" => flat(linalg::lp_norm(m(), 3.0, 1)),
        "max_abs_norm" => flat(linalg::max_abs_norm(m(), 1)),
        "min_abs_norm" => flat(linalg::min_abs_norm(m(), 1)),
        "vector_norm" => flat(linalg::vector_norm(m(), Norm::Lp(1.5), 1)),
        "vector_normalize" => flat(linalg::vector_normalize(m(), 2.0, 1, 1e-12)),
        "trace" => linalg::trace::<B, 2, 1>(m().slice([0..2, 0..2])),
        "diag" => linalg::diag::<B, 2, 1, _>(m()),
        "det" => linalg::det::<B, 3, 2, 1>(m().slice([0..2, 0..2]).unsqueeze()),
        "lu" => flat(linalg::lu::<B, 2, 1>(m().slice([0..2, 0..2])).1),
        "meshgrid" => {
            let [a, b] = grid::meshgrid(&[a.clone().narrow(0, 0, 3), a.narrow(0, 3, 3)], GridOptions::default());
            joined(vec![a, b])
        }
        "meshgrid_stack" => {
            let axes = [a.clone().narrow(0, 0, 3), a.narrow(0, 3, 3)];
            flat(grid::meshgrid_stack::<B, 2, 3, _>(&axes, IndexPos::Last))
        }
        "ops::sort" => flat(ops::sort(m(), 1, false)),
        "ops::sort descending" => flat(ops::sort(m(), 1, true)),
        "ops::top_k" => flat(ops::top_k(m(), 1, 2).0),
        "ops::sum_of_squares" => ops::sum_of_squares(vec![m().into(), a.into()])?,
        _ => return None,
    })
}

/// Fourier transforms of signals and of half spectra. The first and the last coefficient of a real signal are real.
pub fn signals<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let a = x[0].clone();
    let device = a.device();
    let options = StftOptions { hop_length: 2, ..StftOptions::new(4) };
    let window = || Some(Tensor::<B, 1>::from_floats([0.5, 1.0, 0.75, 0.25], &device));
    Some(match name {
        "rfft" => {
            let (re, im) = signal::rfft::<B, 2>(a.reshape([2, 4]), 1, None);
            joined(vec![re, im])
        }
        "irfft" => {
            let im = x[1].clone().reshape([2, 3]) * Tensor::<B, 2>::from_floats([[0.0, 1.0, 0.0]], &device);
            flat(signal::irfft::<B, 2>(a.reshape([2, 3]), im, 1, None))
        }
        "cfft" => {
            let (re, im) = signal::cfft::<B, 2>(a.reshape([2, 4]), x[1].clone().reshape([2, 4]), 1, None);
            joined(vec![re, im])
        }
        "stft" => flat(signal::stft(a.reshape([1, 12]), window(), options)),
        "istft" => {
            let is_used = Tensor::<B, 4>::from_floats([[[[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]]], &device);
            flat(signal::istft(a.reshape([1, 5, 3, 2]) * is_used, window(), None, options))
        }
        _ => return None,
    })
}

/// Products of two arrays with 6 elements.
pub fn products<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let [a, b] = x else { return None };
    let (m, n) = (|| a.clone().reshape([2, 3]), || b.clone().reshape([2, 3]));
    let (a, b) = (|| a.clone(), || b.clone());
    Some(match name {
        "matmul" => flat(m().matmul(n().transpose())),
        "matmul of batches" => flat(m().reshape([2, 1, 3]).matmul(n().reshape([2, 3, 1]))),
        "ops::matmul" => flat(grove_backend::matmul(m(), n().transpose())),
        "dot" => a().dot(b()),
        "cross" => flat(m().cross(n(), 1)),
        "matvec" => linalg::matvec(m(), b().narrow(0, 0, 3)),
        "outer" => flat(linalg::outer::<B, 1, 2, _>(a(), b())),
        "outer_dim" => flat(linalg::outer_dim::<B, 2, 3, _, _>(m(), n(), 1)),
        "cosine_similarity" => flat(linalg::cosine_similarity(m(), n(), 1, Some(1e-8.elem()))),
        "cross_entropy_with_logits" => burn::tensor::loss::cross_entropy_with_logits(m(), n()),
        "ops::linear" => flat(ops::linear(m(), n().transpose(), Some(b().narrow(0, 0, 2)))),
        "ops::scale" => {
            let scaled = ops::scale(vec![m().into()], b().narrow(0, 0, 1)).remove(0);
            flat(scaled.into_float::<2>()?)
        }
        _ => return None,
    })
}
