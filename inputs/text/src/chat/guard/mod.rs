//! Templates in which all operations that create or read values are charged.
//!
//! minijinja's operators cannot be replaced, and it computes constants while it compiles a template. So a template is
//! parsed, and its syntax tree is copied with filters around operands and results: `a ~ b` becomes `a|text ~ b|text`,
//! where `text` charges for the string it creates. The names of these filters cannot be written in a template.

use minijinja::{
    Value,
    machinery::{
        CodeGenerator, Instructions, Span, WhitespaceConfig,
        ast::{self, Expr, Spanned, Stmt},
        parse,
    },
    syntax::SyntaxConfig,
};

mod expr;

use super::failed;
use crate::error::{Result, TextError};
use expr::filtered;

/// Maximum nesting depth of expressions and statements; minijinja itself stops at 150 brackets.
const DEEPEST: usize = 400;

/// Filter: converts to a string like Python's `str`, and charges for it.
pub(super) const TEXT: &str = "~";
/// Filter: charges for an operand of a sum.
pub(super) const PART: &str = "+";
/// Filter: multiplies by its argument.
pub(super) const TIMES: &str = "*";
/// Filter: formats a text with its argument, or computes a remainder. The second argument is true if the first is written
/// as several values.
pub(super) const REMAINDER: &str = "%";
/// Filter: charges for reading the whole value.
pub(super) const READ: &str = "=";
/// Filter: requires a valid key: a string, a number or the like.
pub(super) const KEY: &str = "[]";
/// Filter: converts a lazy iterable to a list.
pub(super) const SETTLED: &str = "()";
/// Filter: requires a value that a namespace may hold.
pub(super) const HELD: &str = ".";
/// Filter: calls a method of a map by name and arguments, even if the map has a key of this name.
pub(super) const METHOD: &str = ".()";

/// Methods of maps, which in Python take precedence over keys of the same name.
const OF_MAPS: [&str; 4] = ["get", "items", "keys", "values"];

/// Compiles a template with charges for its values.
pub(super) fn compile(source: &str) -> Result<Instructions<'_>> {
    // The same whitespace options as in transformers.
    let spaces = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let template = parse(source, "chat template", SyntaxConfig, spaces).map_err(|error| failed(&error))?;
    let guarded = Copy { depth: 0 }.stmt(&template)?;
    let mut generator = CodeGenerator::new("chat template", source);
    generator.compile_stmt(&guarded);
    Ok(generator.finish().0)
}

/// Copies a syntax tree.
struct Copy {
    depth: usize,
}

fn refused(span: Span, reason: &str) -> TextError {
    TextError::template(Some(span.start_line.into()), reason)
}

/// Returns true if the target of an assignment includes an attribute of a namespace.
fn has_attribute(target: &Expr<'_>) -> bool {
    match target {
        Expr::GetAttr(_) => true,
        Expr::List(list) => list.items.iter().any(has_attribute),
        _ => false,
    }
}

impl Copy {
    fn deeper<T>(&mut self, span: Span, copy: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEEPEST {
            return Err(refused(span, "expressions are nested too deeply"));
        }
        self.depth += 1;
        let copied = copy(self)?;
        self.depth -= 1;
        Ok(copied)
    }

    fn stmts<'s>(&mut self, stmts: &[Stmt<'s>]) -> Result<Vec<Stmt<'s>>> {
        stmts.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt<'s>(&mut self, stmt: &Stmt<'s>) -> Result<Stmt<'s>> {
        Ok(match stmt {
            Stmt::Template(template) => Stmt::Template(Spanned::new(
                ast::Template { children: self.stmts(&template.children)? },
                template.span(),
            )),
            Stmt::EmitExpr(emit) => {
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: self.expr(&emit.expr)? }, emit.span()))
            }
            // As an expression it goes through the formatter, which charges for it.
            Stmt::EmitRaw(raw) => {
                let text = Expr::Const(Spanned::new(ast::Const { value: Value::from(raw.raw) }, raw.span()));
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: text }, raw.span()))
            }
            Stmt::ForLoop(of) => self.deeper(of.span(), |this| {
                let filter_expr = of.filter_expr.as_ref().map(|expr| this.expr(expr)).transpose()?;
                let copy = ast::ForLoop {
                    target: this.target(&of.target)?,
                    iter: this.expr(&of.iter)?,
                    filter_expr,
                    recursive: of.recursive,
                    body: this.stmts(&of.body)?,
                    else_body: this.stmts(&of.else_body)?,
                };
                Ok(Stmt::ForLoop(Spanned::new(copy, of.span())))
            })?,
            Stmt::IfCond(of) => self.deeper(of.span(), |this| {
                let copy = ast::IfCond {
                    expr: this.expr(&of.expr)?,
                    true_body: this.stmts(&of.true_body)?,
                    false_body: this.stmts(&of.false_body)?,
                };
                Ok(Stmt::IfCond(Spanned::new(copy, of.span())))
            })?,
            Stmt::WithBlock(of) => self.deeper(of.span(), |this| {
                let pairs = of.assignments.iter().map(|(name, expr)| Ok((this.target(name)?, this.expr(expr)?)));
                let assignments = pairs.collect::<Result<_>>()?;
                let copy = ast::WithBlock { assignments, body: this.stmts(&of.body)? };
                Ok(Stmt::WithBlock(Spanned::new(copy, of.span())))
            })?,
            Stmt::Set(of) => {
                let mut expr = self.expr(&of.expr)?;
                if has_attribute(&of.target) {
                    expr = filtered(HELD, expr, Vec::new());
                }
                Stmt::Set(Spanned::new(ast::Set { target: self.target(&of.target)?, expr }, of.span()))
            }
            Stmt::SetBlock(of) => self.deeper(of.span(), |this| {
                let filter = of.filter.as_ref().map(|expr| this.expr(expr)).transpose()?;
                let copy =
                    ast::SetBlock { target: this.target(&of.target)?, filter, body: this.scope(of.span(), &of.body)? };
                Ok(Stmt::SetBlock(Spanned::new(copy, of.span())))
            })?,
            Stmt::FilterBlock(of) => self.deeper(of.span(), |this| {
                let copy = ast::FilterBlock { filter: this.expr(&of.filter)?, body: this.scope(of.span(), &of.body)? };
                Ok(Stmt::FilterBlock(Spanned::new(copy, of.span())))
            })?,
            Stmt::Macro(of) => Stmt::Macro(self.definition(of)?),
            Stmt::CallBlock(of) => {
                let copy = ast::CallBlock { call: self.call(&of.call)?, macro_decl: self.definition(&of.macro_decl)? };
                Stmt::CallBlock(Spanned::new(copy, of.span()))
            }
            Stmt::Continue(of) => Stmt::Continue(Spanned::new(ast::Continue, of.span())),
            Stmt::Break(of) => Stmt::Break(Spanned::new(ast::Break, of.span())),
            Stmt::Do(of) => Stmt::Do(Spanned::new(ast::Do { call: self.call(&of.call)? }, of.span())),
            Stmt::AutoEscape(of) => {
                return Err(refused(of.span(), "{% autoescape %} is not allowed in a chat template"));
            }
            Stmt::Block(of) => return Err(other_templates(of.span())),
            Stmt::Import(of) => return Err(other_templates(of.span())),
            Stmt::FromImport(of) => return Err(other_templates(of.span())),
            Stmt::Extends(of) => return Err(other_templates(of.span())),
            Stmt::Include(of) => return Err(other_templates(of.span())),
        })
    }

    /// Wraps statements in their own scope, as in Jinja; in minijinja their names would be visible outside.
    fn scope<'s>(&mut self, span: Span, stmts: &[Stmt<'s>]) -> Result<Vec<Stmt<'s>>> {
        let with = ast::WithBlock { assignments: Vec::new(), body: self.stmts(stmts)? };
        Ok(vec![Stmt::WithBlock(Spanned::new(with, span))])
    }

    fn definition<'s>(&mut self, of: &Spanned<ast::Macro<'s>>) -> Result<Spanned<ast::Macro<'s>>> {
        self.deeper(of.span(), |this| {
            let copy = ast::Macro {
                name: of.name,
                args: of.args.iter().map(|arg| this.target(arg)).collect::<Result<_>>()?,
                defaults: this.exprs(&of.defaults)?,
                body: this.stmts(&of.body)?,
            };
            Ok(Spanned::new(copy, of.span()))
        })
    }

    /// Copies the target of an assignment: a name, a list of names, or an attribute of a namespace.
    fn target<'s>(&mut self, target: &Expr<'s>) -> Result<Expr<'s>> {
        self.deeper(target.span(), |this| match target {
            Expr::List(list) => {
                let items = list.items.iter().map(|item| this.target(item)).collect::<Result<_>>()?;
                Ok(Expr::List(Spanned::new(ast::List { items }, list.span())))
            }
            other => this.expr(other),
        })
    }
}

fn other_templates(span: Span) -> TextError {
    refused(span, "blocks and inclusion of other templates are not allowed in a chat template")
}
