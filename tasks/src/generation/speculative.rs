//! Speculative decoding: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (2023).

use grove_backend::Backend;
use grove_layers::MAX_ROLLBACK;
use grove_models::{CausalLm, ModelError, Result};
use serde::Serialize;

use super::{
    DecodeSession, Finish, GenerateOptions, Generated, generate,
    run::{check_prompt, draw, ends_of, limit_of},
};

/// Acceptance counts of a draft model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drafted {
    /// Number of tokens that the draft proposed.
    pub proposed: usize,
    /// Number of proposed tokens that the model accepted.
    pub accepted: usize,
}

/// Continues a prompt as [`generate`](super::generate) does, with a smaller draft model. The draft proposes the next
/// `lookahead` tokens one by one. The model processes them in one forward pass and accepts those that it would have
/// sampled itself.
///
/// The output is identical to decoding without a draft: the model samples each token from its own logits, with the
/// random numbers of its position. The draft samples with the same random numbers, so that both mostly agree. (Logits
/// of several positions at once differ in rounding from those of one position, which can decide between two tokens that
/// are almost equally likely.)
///
/// The draft needs the model's tokenizer. Their vocabulary sizes may differ, since published models pad their
/// embeddings differently. The draft proposes only tokens that both models have, and none after a token that it lacks.
///
/// A model whose hidden states all depend on the sequence length decodes without the draft: it has to process each
/// token at its own length.
///
/// # Errors
/// As [`generate`](super::generate); [`ModelError::Option`] if `lookahead` is not between 1 and 16.
pub fn generate_with_draft<B: Backend, M: CausalLm<B>, D: CausalLm<B>>(
    model: &M,
    draft: &D,
    prompt: &[u32],
    lookahead: usize,
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> bool,
) -> Result<(Generated, Drafted)> {
    options.sampling.validate()?;
    check_prompt(model, prompt)?;
    if lookahead == 0 || lookahead > MAX_ROLLBACK {
        let (option, range) = ("the draft's look-ahead", "between 1 and 16 tokens");
        return Err(ModelError::Option { option, value: lookahead.to_string(), range });
    }
    if model.reads_prompts_whole() {
        let mut rows = generate(model, &[prompt.to_vec()], options, |_, token| on_token(token))?;
        return Ok((rows.remove(0), Drafted::default()));
    }
    let (tokens, draft_tokens) = (model.vocab_size(), draft.vocab_size());
    let common = tokens.min(draft_tokens);
    // Number of leading tokens that are in the draft's vocabulary.
    let mut in_draft = 0;
    let ends = ends_of(model, options);
    let (steps, reason) = limit_of(model, prompt.len(), options);
    let room = prompt.len() + steps + lookahead;
    let mut session = DecodeSession::new(model, room).with_cache_dtype(options.cache_dtype);
    let mut draft_session = DecodeSession::new(draft, room).with_cache_dtype(options.cache_dtype);
    let mut ids = prompt.to_vec();
    let mut drafted = Drafted::default();
    let key_of = |ids: &[u32]| options.key_of(ids.len() - prompt.len(), 0);
    'text: while ids.len() - prompt.len() < steps {
        let begin = ids.len();
        // The model itself samples the last token, and neither model exceeds its context.
        let left = steps - (begin - prompt.len()) - 1;
        in_draft += ids[in_draft..].iter().take_while(|id| (**id as usize) < draft_tokens).count();
        let left = if in_draft < begin { 0 } else { left };
        let room = draft.context().map_or(left, |context| context.saturating_sub(begin).min(left));
        let mut proposed = ids.clone();
        for _ in 0..lookahead.min(room) {
            let (mut logits, next) = draft_session.read(draft, &proposed, 1);
            draft_session = next;
            logits.truncate(common);
            // The rules can exclude all tokens of the common vocabulary.
            let token = match draw(draft, options, &mut logits, (&proposed, prompt.len()), key_of(&proposed)) {
                Err(ModelError::Config { .. }) => break,
                drawn => drawn?,
            };
            proposed.push(token);
            if ends.contains(&token) {
                break;
            }
        }
        let proposals = proposed.len() - begin;
        drafted.proposed += proposals;
        let (mut logits, next) = session.read(model, &proposed, proposals + 1);
        session = next;
        for (i, logits) in logits.chunks_exact_mut(tokens).enumerate() {
            let token = draw(model, options, logits, (&ids, prompt.len()), key_of(&ids))?;
            let is_accepted = proposed.get(begin + i) == Some(&token);
            drafted.accepted += usize::from(is_accepted);
            if ends.contains(&token) {
                return Ok((Generated { ids: ids.split_off(prompt.len()), finish: Finish::Stop }, drafted));
            }
            ids.push(token);
            if !on_token(token) {
                return Ok((Generated { ids: ids.split_off(prompt.len()), finish: Finish::Callback }, drafted));
            }
            if !is_accepted {
                continue 'text;
            }
        }
    }
    Ok((Generated { ids: ids.split_off(prompt.len()), finish: reason }, drafted))
}
