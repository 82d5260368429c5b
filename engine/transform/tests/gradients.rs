//! Absent and zero gradients, and checks of the loss.

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use grove_backend::{Autodiff, Backend, Candle};
use grove_transform::{GradOptions, Scan, grad, value_and_grad, vjp};
use grove_tree::{AnyArray, Array, Tree, all_close, by_path, eq, is_buffer, skeleton};

#[derive(Tree, Clone, Debug)]
struct Norm<B: Backend> {
    scale: Array<B, 1>,
    #[tree(buffer)]
    running_var: Array<B, 1>,
}

type A = Autodiff<Flex>;

fn array<B: Backend>(x: &[f32]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(x, &Default::default()))
}

fn norm<B: Backend>() -> Norm<B> {
    Norm { scale: array(&[3.0]), running_var: array(&[4.0]) }
}

fn numbers<B: Backend>(x: &Array<B, 1>) -> Vec<f32> {
    x.val().into_data().iter::<f32>().collect()
}

/// `scale^2 * running_var`
fn product<B: Backend>(norm: &Norm<B>) -> Tensor<B, 1> {
    norm.scale.val() * norm.scale.val() * norm.running_var.val()
}

fn buffers_have_no_gradient<B: Backend>() {
    let (loss, grads) = value_and_grad(&norm::<B>(), |m| product(&m));
    assert_eq!((loss.into_data().iter::<f32>().next(), numbers(&grads.scale)), (Some(36.0), vec![24.0]));
    assert!(!grads.running_var.is_present());
    // Hand-written gradient descent does not change the statistics.
    let moved = grove_tree::zip_map(norm::<B>(), &grads, |_, x, grad| x.clone().try_sub(grad).unwrap_or(x)).unwrap();
    assert_eq!((numbers(&moved.scale), numbers(&moved.running_var)), (vec![-21.0], vec![4.0]));

    let options = GradOptions::new().with_buffers();
    let (_, grads, ()) = options.value_and_grad_aux(&norm::<B>(), |m| (product(&m), ()));
    assert_eq!((numbers(&grads.scale), numbers(&grads.running_var)), (vec![24.0], vec![9.0]));
    let options = GradOptions::new().only(is_buffer()).with_buffers();
    let (_, grads, ()) = options.value_and_grad_aux(&norm::<B>(), |m| (product(&m), ()));
    assert!(!grads.scale.is_present());
    assert_eq!(numbers(&grads.running_var), [9.0]);

    let (_, pullback) = vjp(&norm::<B>(), |m| Array::<_, 1>::new(product(&m)));
    let grads = pullback(array(&[1.0]));
    assert_eq!(numbers(&grads.scale), [24.0]);
    assert!(!grads.running_var.is_present());
}

#[test]
fn parameters_only() {
    buffers_have_no_gradient::<Flex>();
    buffers_have_no_gradient::<Candle>();
}

#[test]
fn a_carry_with_buffers_passes_gradients_on() {
    // The scale passes from step to step through the carry's buffer.
    let step = |m: &Norm<A>, carry: Norm<A>, ()| {
        let scale = carry.scale.val() * m.scale.val();
        let running_var = carry.running_var.val() + scale.clone() * m.running_var.val();
        (Norm { scale: Array::new(scale), running_var: Array::new(running_var) }, ())
    };
    let loss = |_: &Norm<A>, carry: Norm<A>, ()| carry.running_var.val();
    let scan = Scan::new().length(5);
    let (value, (params, init, ())) = scan.remat().every(2).value_and_grad(&norm(), norm(), (), step, loss);
    let (again, tape) = value_and_grad(&(norm(), norm()), |(m, init): (Norm<A>, Norm<A>)| {
        let (carry, ()) = scan.run::<A, _, _, _>(|carry, ()| step(&m, carry, ()), init, ());
        loss(&m, carry, ())
    });
    assert_eq!(value.into_scalar(), again.into_scalar());
    assert!(all_close::<Flex, _>(&(params.clone(), init.clone()), &tape, 1e-6, 0.0));
    assert!(params.scale.is_present() && !params.running_var.is_present() && !init.running_var.is_present());
}

#[test]
fn a_loss_that_depends_on_nothing() {
    // A new constant, a constant leaf, a function of a constant leaf, and a detached value.
    let zero = |grads: Norm<Flex>| assert_eq!(numbers(&grads.scale), [0.0]);
    zero(grad(&norm::<Flex>(), |_| Tensor::from_floats([7.0], &Default::default())));
    zero(grad(&norm::<Flex>(), |m| m.running_var.val()));
    zero(grad(&norm::<Flex>(), |m| m.running_var.val() * 2.0 + 1.0));
    zero(grad(&norm::<Flex>(), |m| m.scale.val().detach()));
    let options = GradOptions::new().only(by_path("scale"));
    let (loss, grads, aux) = options.value_and_grad_aux(&norm::<Flex>(), |m| (m.running_var.val(), m.scale));
    assert_eq!((loss.into_scalar(), numbers::<Flex>(&aux)), (4.0, vec![3.0]));
    zero(grads);
    // NaN and infinity in the leaf do not make the gradient NaN.
    let leaf = array::<Flex>(&[f32::NAN, f32::INFINITY, 1.0]);
    let unused = grad(&leaf, |_| Tensor::from_floats([7.0], &Default::default()));
    assert_eq!(numbers(&unused), [0.0; 3]);
    let (_, unused) = value_and_grad(&(array::<Flex>(&[2.0]), leaf), |(x, _)| x.val());
    assert_eq!((numbers(&unused.0), numbers(&unused.1)), (vec![1.0], vec![0.0; 3]));
}

#[test]
fn a_tree_without_parameters() {
    let one = || Tensor::<A, 1>::from_floats([1.0], &Default::default());
    let ids = Array::<Flex, 1, Int>::new(Tensor::from_ints([4, 5], &Default::default()));
    let (loss, grads) = value_and_grad(&ids, |ids| ids.val().float().sum());
    assert!(loss.into_scalar() == 9.0 && !grads.is_present());
    let (loss, ()) = value_and_grad::<Flex, _>(&(), |()| one() * 3.0);
    assert_eq!(loss.into_scalar(), 3.0);
    let (_, grads) = value_and_grad(&skeleton(norm::<Flex>()), |_| one());
    assert!(!grads.scale.is_present() && !grads.running_var.is_present());
    let (result, pullback) = vjp(&ids, |ids| Array::<_, 1>::new(ids.val().float()));
    assert!(!pullback(result).is_present());
    let nothing = |_: &(), x: Array<A, 1>, ()| (Array::new(x.val().detach()), ());
    let loss = |_: &(), x: Array<A, 1>, ()| x.val();
    let (_, ((), x, ())) = Scan::new().length(3).remat().value_and_grad(&(), array(&[2.0]), (), nothing, loss);
    assert_eq!(numbers::<Flex>(&x), [0.0]);
}

#[test]
fn one_element_is_one_number() {
    let (loss, grads) = value_and_grad(&array::<Flex>(&[3.0]), |x| x.val() * x.val());
    assert_eq!((loss.into_scalar(), numbers(&grads)), (9.0, vec![6.0]));
}

#[test]
#[should_panic(expected = "the loss has shape [3], but must be one value: return its sum or its mean")]
fn refuses_a_loss_of_several_numbers() {
    value_and_grad(&array::<Flex>(&[1.0, 2.0, 3.0]), |x| x.val());
}

#[test]
#[should_panic(expected = "the loss has shape [0]")]
fn refuses_a_loss_of_no_number() {
    value_and_grad(&array::<Flex>(&[1.0]), |_| Tensor::empty([0], &Default::default()));
}

#[test]
#[should_panic(expected = "the loss has shape [2]")]
fn refuses_a_scans_loss_of_several_numbers() {
    let step = |a: &Array<A, 1>, x: Array<A, 1>, ()| (Array::new(a.val() * x.val()), ());
    let loss = |_: &Array<A, 1>, x: Array<A, 1>, ()| x.val();
    let (params, init) = (array::<Flex>(&[1.0, 2.0]), array(&[1.0, 1.0]));
    Scan::new().length(2).remat().value_and_grad(&params, init, (), step, loss);
}

#[test]
#[should_panic(expected = "the pattern `scael` matches no path of this tree; similar paths: scale, running_var")]
fn a_misspelt_path_is_named() {
    let options = GradOptions::new().only(!by_path("scael"));
    options.value_and_grad_aux(&norm::<Flex>(), |m| (product(&m), ()));
}

#[test]
fn what_a_function_returns_can_be_a_leaf_itself() {
    let (x, y) = (array::<Flex>(&[2.0]), array::<Flex>(&[5.0]));
    let (loss, grads) = value_and_grad(&(x.clone(), y.clone()), |(x, _)| x.val());
    assert_eq!((loss.into_scalar(), numbers(&grads.0), numbers(&grads.1)), (2.0, vec![1.0], vec![0.0]));
    let (value, pullback) = vjp(&(x, y), |both| both);
    assert!(eq::<Flex, _>(&value.0, &array(&[2.0])));
    let grads = pullback((array(&[3.0]), array(&[4.0])));
    assert_eq!((numbers(&grads.0), numbers(&grads.1)), (vec![3.0], vec![4.0]));
    let any: AnyArray<Flex> = array(&[1.0]).into_any();
    assert!(grad(&any, |_| Tensor::from_floats([1.0], &Default::default())).is_present());
}
