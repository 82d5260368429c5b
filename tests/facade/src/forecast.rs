//! An LSTM that predicts the next value of a time series.

use grove::{
    layers::rnn::{Lstm, RnnOptions},
    prelude::*,
};

/// An LSTM and an output layer.
#[derive(Tree, Clone, Debug)]
pub struct Forecast<B: Backend> {
    lstm: Lstm<B>,
    head: Linear<B>,
}

impl<B: Backend> Forecast<B> {
    fn new(init: &Init<B>) -> Self {
        let options = RnnOptions { batch_first: true, ..Default::default() };
        Self { lstm: Lstm::new(1, 32, &options, init.named("lstm")), head: Linear::new(32, 1, init.named("head")) }
    }

    /// Predicts the value after each window: `[b, t, 1]` to `[b, 1]`.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let (_, [h, _]) = self.lstm.forward(x, None, None);
        self.head.forward(h.val().squeeze_dim(0))
    }
}

/// Trains a model on all windows of a series, `[n]`.
pub fn train(series: Tensor<Flex, 1>, window: usize, steps: usize) -> Forecast<Flex> {
    let windows = series.unfold::<2, _>(0, window + 1, 1);
    let x = windows.clone().narrow(1, 0, window).unsqueeze_dim(2);
    let batch = (Array::<Flex, 3>::new(x), Array::<Flex, 2>::new(windows.narrow(1, window, 1)));
    let mut model = Forecast::<Flex>::new(&Init::new(Key::new(0), &Default::default()));
    let optimizer = adamw(1e-2, Adamw::default());
    let mut state = optimizer.init(&model);
    for _ in 0..steps {
        let (_loss, grads) =
            value_and_grad_with(&model, &batch, |model, (x, y)| squared_error(model.forward(x.val()), y.val()).mean());
        (model, state) = optimizer.step(grads, state, model);
    }
    model
}
