//! The accuracy of a classifier over the batches of a data set.

use crate::mnist::{Digits, Mlp};
use grove::{prelude::*, train::data::DataError};

/// Returns the fraction of the digits that a model classifies correctly.
pub fn evaluate(model: &Mlp<Flex>, data: &impl Data<Batch = Digits>) -> Result<f64, DataError> {
    let mut score = ClassifierScore::new(0..10);
    for batch in data.epoch(0) {
        let (x, y) = batch?;
        score.update(model.forward(x.val()), y.val());
    }
    Ok(score.confusion.accuracy())
}
