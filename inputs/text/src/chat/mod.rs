//! Chat templates: the conversion of messages to a model's prompt, as published in its repository.
//!
//! A template is a Jinja program from an untrusted author. It is rendered as in transformers, with restrictions: it
//! sees the messages, the names of special tokens and a clock, reads no files, and ends, with an error if necessary,
//! before it takes much time or memory.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use jiff::{Timestamp, Zoned, tz::TimeZone};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, functions,
    machinery::{Vm, make_string_output},
    value::Rest,
};
use serde::{Deserialize, Serialize};
use serde_json::Map;

mod budget;
mod files;
mod filter;
mod filters;
mod guard;
mod json;
mod methods;
mod paid;
mod predicates;
mod python;
mod tags;

pub use files::{ADDITIONAL_TEMPLATES, additional_templates};

use self::budget::Budget;
use crate::{
    error::{Result, TextError},
    printable::error_message,
};

/// Maximum length of a template, in bytes. Published ones, with tools and reasoning, have about 20 kB.
const LONGEST: usize = 256 << 10;

/// Maximum number of instructions of a template, and the additional number per message. Published templates take a few
/// hundred per message.
const FUEL: u64 = 500_000;
const FUEL_PER_MESSAGE: u64 = 5_000;

/// Maximum recursion depth of macros and loops; a macro call counts four.
const DEEPEST: usize = 400;

/// Maximum length of a prompt in bytes, in addition to sixteen times the size of the input.
const LONGEST_PROMPT: usize = 4 << 20;

/// Stack size of the rendering thread in bytes, most of which is never touched. Freeing nested values needs stack for
/// each level, and a template can have several hundred thousand levels: `x.a.a.a…`.
const STACK: usize = 256 << 20;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Author of the message, usually `system`, `user` or `assistant`.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A chat template, with the variables that it may use.
///
/// ```
/// use grove_text::chat::{ChatTemplate, Message};
///
/// let source = "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}</s>{% endfor %}\
///               {% if add_generation_prompt %}{{ bos_token }}{% endif %}";
/// let template = ChatTemplate::new(source, [("bos_token", "<s>")])?;
/// let prompt = template.render(&[Message::new("user", " Good morning! ")], true)?;
/// assert_eq!(prompt, "<user>Good morning!</s><s>");
/// # Ok::<(), grove_text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    variables: Map<String, serde_json::Value>,
    now: Option<SystemTime>,
    /// File of the template, for errors.
    file: Option<PathBuf>,
}

impl ChatTemplate {
    /// Creates a template with variables by name: `bos_token`, `eos_token`, or others that it uses. `tools` and
    /// `documents` default to none, as in transformers.
    ///
    /// # Errors
    /// [`TextError::Template`], with the line, if the source is not valid Jinja or uses features that are not allowed
    /// in a chat template.
    pub fn new<N, V>(source: &str, variables: impl IntoIterator<Item = (N, V)>) -> Result<Self>
    where
        N: Into<String>,
        V: Into<serde_json::Value>,
    {
        if source.len() > LONGEST {
            let reason = format!("it has {} bytes; the maximum is {LONGEST}", source.len());
            return Err(TextError::template(None, reason));
        }
        // Jinja reads every line ending as a newline.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let source = tags::known(&source).into_owned();
        let mut all: Map<String, serde_json::Value> =
            ["tools", "documents"].map(|name| (name.to_owned(), serde_json::Value::Null)).into_iter().collect();
        all.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        on_own_stack(|| guard::compile(&source).map(|_| ()))?;
        Ok(Self { source, variables: all, now: None, file: None })
    }

    /// Creates a template that was read from a file.
    ///
    /// # Errors
    /// As [`new`](Self::new), but [`TextError::Config`] with the file.
    pub fn of_file<N, V>(file: &Path, source: &str, variables: impl IntoIterator<Item = (N, V)>) -> Result<Self>
    where
        N: Into<String>,
        V: Into<serde_json::Value>,
    {
        match Self::new(source, variables) {
            Ok(template) => Ok(Self { file: Some(file.to_owned()), ..template }),
            Err(error) => Err(error.in_file(file)),
        }
    }

    /// Reads the template and the special tokens of a model's directory. The template is the first of
    /// `additional_chat_templates/default.jinja`, `chat_template.jinja`, and the entry `chat_template` of
    /// `tokenizer_config.json` (of several, the one named `default`) or of `chat_template.json`. Returns `None` if the
    /// directory has none of them.
    ///
    /// # Errors
    /// A file cannot be read, or there are additional templates and none is named `default`; as [`new`](Self::new), but
    /// [`TextError::Config`] with the file.
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Option<Self>> {
        let Some(files::Found { source, tokens, file }) = files::template(directory.as_ref())? else { return Ok(None) };
        Self::of_file(&file, &source, tokens).map(Some)
    }

    /// Adds variables, such as special tokens, that the template does not have yet.
    #[must_use]
    pub fn or_variables<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<serde_json::Value>,
    {
        for (name, value) in variables {
            self.variables.entry(name).or_insert(value.into());
        }
        self
    }

    /// Sets the time that the template sees, in UTC. The default is the system's time in its time zone. Templates can
    /// write the date into a prompt.
    #[must_use]
    pub fn at(mut self, now: SystemTime) -> Self {
        self.now = Some(now);
        self
    }

    /// Renders a conversation to the model's prompt. Messages are [`Message`]s, or other types that serialise to
    /// maps, for example with tool calls. If `add_generation_prompt` is true, the prompt ends with the beginning of
    /// the model's answer.
    ///
    /// # Errors
    /// [`TextError::Refused`], with the template's message, if it raises an exception; [`TextError::Template`] if it
    /// fails or takes too much time or memory.
    pub fn render<M: Serialize>(&self, messages: &[M], add_generation_prompt: bool) -> Result<String> {
        let count = messages.len() as u64;
        let messages = Value::from_serialize(messages);
        let rendered = on_own_stack(move || self.rendered(messages, count, add_generation_prompt));
        rendered.map_err(|error| match &self.file {
            Some(file) => error.in_file(file),
            None => error,
        })
    }

    fn rendered(&self, messages: Value, count: u64, add_generation_prompt: bool) -> Result<String> {
        let instructions = guard::compile(&self.source)?;
        let given = self.variables.iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value)));
        let own = [("messages", messages), ("add_generation_prompt", Value::from(add_generation_prompt))];
        let context: Value = given.chain(own).collect();
        let (budget, given) = Budget::of(&context);
        let mut env = environment(&budget, self.now);
        env.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * count));
        let mut prompt = String::new();
        let longest = given.saturating_mul(16).saturating_add(LONGEST_PROMPT);
        let mut output = make_string_output(&mut prompt);
        let blocks = Default::default();
        Vm::new(&env)
            .eval(&instructions, context, &blocks, &mut output, AutoEscape::None)
            .map_err(|error| failed(&error))?;
        if prompt.len() > longest {
            return Err(TextError::template(
                None,
                format!("its prompt has {} bytes; the maximum is {longest}", prompt.len()),
            ));
        }
        Ok(prompt)
    }
}

/// The functions, filters and tests that a template can use.
fn environment(budget: &Budget, now: Option<SystemTime>) -> Environment<'static> {
    // Contains only the filters and functions that are added here.
    let mut env = Environment::empty();
    env.set_debug(false); // errors would print all variables, at any depth
    env.set_recursion_limit(DEEPEST);
    filters::add(&mut env, budget);
    let paying = budget.clone();
    env.set_unknown_method_callback(move |state, value, method, args| {
        methods::call(state, value, method, args, &paying)
    });
    let paying = budget.clone();
    env.set_formatter(move |out: &mut Output<'_>, _: &State<'_, '_>, value: &Value| {
        match value.as_str() {
            Some(text) => {
                paying.spend(text.len())?;
                out.write_str(text)?;
            }
            None => out.write_str(&python::text(value, &paying)?)?,
        }
        Ok(())
    });
    env.add_function("range", functions::range);
    for (name, function) in
        [("namespace", Value::from_function(functions::namespace)), ("dict", Value::from_function(functions::dict))]
    {
        let paying = budget.clone();
        env.add_function(name, move |state: &State, args: Rest<Value>| {
            args.iter().try_for_each(|arg| paying.count(arg))?;
            function.call(state, &args)
        });
    }
    let paying = budget.clone();
    env.add_function("raise_exception", move |args: Rest<Value>| -> std::result::Result<Value, Error> {
        let message = args.first().map(|message| python::text(message, &paying)).transpose()?.unwrap_or_default();
        Err(Error::new(ErrorKind::InvalidOperation, "refused").with_source(Raised(message)))
    });
    env.add_function("strftime_now", move |format: &str| {
        let wrong = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
        if format.len() > 256 {
            return Err(wrong("the pattern for a date exceeds 256 bytes".into()));
        }
        let zoned = match now {
            None => Zoned::now(),
            Some(now) => Timestamp::try_from(now).map_err(|error| wrong(error.to_string()))?.to_zoned(TimeZone::UTC),
        };
        jiff::fmt::strtime::format(format, &zoned).map_err(|error| wrong(error.to_string()))
    });
    env
}

/// The message of an exception that a template raises.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// Converts an error of minijinja.
fn failed(error: &Error) -> TextError {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return TextError::Refused { message: error_message(message) };
        }
        source = inner.source();
    }
    let reason = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, Some(detail)) => detail.to_owned(),
        (ErrorKind::OutOfFuel, None) => "it takes more steps than any conversation needs; does a loop not end?".into(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    TextError::template(error.line(), reason)
}

/// Runs a function that may need a deep stack. A panic of minijinja becomes an error.
fn on_own_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let thread = thread
            .spawn_scoped(scope, work)
            .map_err(|error| TextError::template(None, format!("cannot start the thread that renders it: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(TextError::template(None, "the template engine fails on it")))
    })
}
