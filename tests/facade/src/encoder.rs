//! The encoder of a trained classifier.

use grove::{models::ModelError, prelude::*};

/// Loads the encoder of a classifier.
pub fn encoder(classifier: &str) -> Result<Bert<Flex>, ModelError> {
    Ok(BertForSequenceClassification::<Flex>::from_pretrained(classifier, &Default::default())?.bert)
}
