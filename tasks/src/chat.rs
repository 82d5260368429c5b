//! Conversations with a model, and chat templates.

use grove_backend::Backend;
use grove_models::{CausalLm, Result};
use grove_text::Tokenizer;

pub use grove_text::chat::{ChatTemplate, Message};
pub use grove_text::chat_template;

use crate::generation::{DecodeSession, GenerateOptions, Generated, TextStream, check_prompt, generate_with_cache};

/// A conversation: its messages, rendered by the model's chat template, and the cache of the tokens that the model has
/// processed. Each turn costs only its new tokens, unless the model's hidden states all depend on the sequence length.
///
/// ```no_run
/// use grove_models::{Llama, ModelFiles};
/// use grove_text::Tokenizer;
/// use grove_tasks::{GenerateOptions, chat::{ChatSession, chat_template}};
/// # type B = burn_flex::Flex;
/// let files = ModelFiles::from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")?;
/// let (model, _) = files.load::<B, Llama<B>>(&Default::default(), None)?;
/// let tokenizer = Tokenizer::from_path(files.tokenizer())?;
/// let template = chat_template(files.tokenizer())?.expect("a model for conversations");
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
    /// Tokens of the messages, followed by the header of a reply.
    prompt: Vec<u32>,
    session: Option<DecodeSession<B, M>>,
    replies: u32,
}

/// A model's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Text without surrounding whitespace.
    pub text: String,
    /// Tokens, and the reason why the reply ended.
    pub generated: Generated,
}

impl<'a, B: Backend, M: CausalLm<B>> ChatSession<'a, B, M> {
    /// Starts a conversation, with a system message if there is one.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer, template: &'a ChatTemplate, system: Option<&str>) -> Self {
        let messages = system.map(|system| Message::new("system", system)).into_iter().collect();
        Self { model, tokenizer, template, messages, prompt: vec![], session: None, replies: 0 }
    }

    /// Returns the messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds a message of the user. After an error the conversation is unchanged.
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
    /// error the conversation is unchanged.
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

    /// Tokens of messages, followed by the start of a reply.
    fn encode(&self, messages: &[Message]) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode_rendered(&self.template.render(messages, true)?)?)
    }

    /// Generates the model's reply to the last message, and adds the reply to the messages. Each reply has its own key,
    /// folded from that of the options.
    ///
    /// - `stop`: the reply ends before the first of these strings
    /// - `on_text`: called with each new piece of the text, which can be empty; if it returns false, generation ends
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
        // States that depend on the sequence length cannot be reused for a longer sequence.
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
