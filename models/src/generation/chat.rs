//! Conversations with a model.

use grove_backend::Backend;
use grove_text::chat::{ChatTemplate, Message};

use super::{CausalLm, DecodeSession, GenerateOptions, Generated, TextStream, check_prompt, generate_with_cache};
use crate::{Tokenizer, error::Result};

/// A conversation: its messages, rendered by the model's chat template, and the cache of what the model has read, so that
/// each turn processes only its new tokens, unless the states of all positions depend on the length of the text.
///
/// ```no_run
/// use grove_models::{GenerateOptions, Llama, Pretrained, Tokenizer, chat::{ChatSession, chat_template}};
/// # type B = burn_flex::Flex;
/// let id = "HuggingFaceTB/SmolLM2-135M-Instruct";
/// let (model, tokenizer) = (Llama::<B>::from_pretrained(id, &Default::default())?, Tokenizer::from_pretrained(id)?);
/// let template = chat_template("SmolLM2-135M-Instruct")?.expect("a model for conversations");
/// let mut chat = ChatSession::new(&model, &tokenizer, &template, Some("Be brief."));
/// chat.say("What is a grove?")?;
/// let reply = chat.reply(&GenerateOptions::default(), &[], |piece| {
///     print!("{piece}");
///     true
/// })?;
/// assert_eq!(chat.messages().len(), 3);
/// # let _ = reply;
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub struct ChatSession<'a, B: Backend, M: CausalLm<B>> {
    model: &'a M,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    messages: Vec<Message>,
    /// Tokens of the messages, with the beginning of a reply.
    prompt: Vec<u32>,
    session: Option<DecodeSession<B, M>>,
    replies: u32,
}

/// A model's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its text, without white space around it.
    pub text: String,
    /// Its tokens, and the reason why it ended.
    pub generated: Generated,
}

impl<'a, B: Backend, M: CausalLm<B>> ChatSession<'a, B, M> {
    /// A conversation that begins with a system message, if there is one.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer, template: &'a ChatTemplate, system: Option<&str>) -> Self {
        let messages = system.map(|system| Message::new("system", system)).into_iter().collect();
        Self { model, tokenizer, template, messages, prompt: vec![], session: None, replies: 0 }
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds a message of the user. After an error the conversation is as before.
    ///
    /// # Errors
    /// The template refuses the messages, or they do not fit into the model's context.
    pub fn say(&mut self, message: &str) -> Result<()> {
        let messages = [&*self.messages, &[Message::new("user", message)]].concat();
        let prompt = self.encode(&messages)?;
        check_prompt(self.model, &prompt)?;
        (self.messages, self.prompt) = (messages, prompt);
        Ok(())
    }

    /// Adds a message of the user, and drops the oldest turns until the prompt and `room` more tokens fit into the model's
    /// context. The system message and the new message stay. Returns the number of messages that were dropped. After an
    /// error the conversation is as before.
    ///
    /// # Errors
    /// As [`say`](Self::say), if the new message alone does not fit.
    pub fn say_within(&mut self, message: &str, room: usize) -> Result<usize> {
        let mut messages = [&*self.messages, &[Message::new("user", message)]].concat();
        let system = usize::from(messages[0].role == "system");
        let mut dropped = 0;
        loop {
            let prompt = self.encode(&messages)?;
            let fits = self.model.context().is_none_or(|context| prompt.len() + room <= context);
            let turns = messages.len() - system - 1;
            if fits || turns == 0 {
                check_prompt(self.model, &prompt)?;
                if dropped > 0 {
                    self.session = None;
                }
                (self.messages, self.prompt) = (messages, prompt);
                return Ok(dropped);
            }
            // A turn is a message of the user and its reply.
            let turn = turns.min(2);
            messages.drain(system..system + turn);
            dropped += turn;
        }
    }

    /// The tokens of messages, with the beginning of a reply.
    fn encode(&self, messages: &[Message]) -> Result<Vec<u32>> {
        self.tokenizer.encode_rendered(&self.template.render(messages, true)?)
    }

    /// Generates the model's reply to the last message, and adds it to the messages. Each reply is sampled with a key of
    /// its own, folded from that of the options.
    ///
    /// - `stop`: the reply ends before the first of these strings
    /// - `on_text`: called with each new piece of the text, which can be empty; generation ends where it returns false
    ///
    /// # Errors
    /// As [`generate_with_cache`], or the tokenizer cannot decode a token.
    pub fn reply(
        &mut self,
        options: &GenerateOptions,
        stop: &[String],
        mut on_text: impl FnMut(&str) -> bool,
    ) -> Result<Reply> {
        let mut stream = TextStream::after(self.tokenizer, stop, &self.prompt);
        let mut broken = None;
        let on_token = |token| match stream.push(token) {
            Ok(piece) => on_text(&piece) && !stream.stopped(),
            Err(error) => {
                broken = Some(error);
                false
            }
        };
        let options = GenerateOptions { key: options.key.fold_in(self.replies), ..options.clone() };
        // States that depend on the length of the text are not those of a longer one.
        let session = self.session.take().filter(|_| !self.model.reads_prompts_whole());
        let session = session.unwrap_or_else(|| DecodeSession::new(self.model, 0));
        let (generated, session) = generate_with_cache(self.model, session, &self.prompt, &options, on_token)?;
        if let Some(error) = broken {
            return Err(error);
        }
        on_text(&stream.finish()?);
        let text = stream.text().trim().to_owned();
        self.messages.push(Message::new("assistant", &text));
        (self.session, self.replies) = (Some(session), self.replies + 1);
        Ok(Reply { text, generated })
    }
}
