//! Expressions, charged for the values that they create and read.

use minijinja::{
    Value,
    machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned},
};

use super::{Copy, KEY, METHOD, OF_MAPS, PART, READ, REMAINDER, SETTLED, TEXT, TIMES, refused};
use crate::error::Result;

/// Applies a filter to an expression.
pub(super) fn filtered<'s>(name: &'static str, expr: Expr<'s>, args: Vec<CallArg<'s>>) -> Expr<'s> {
    let span = expr.span();
    Expr::Filter(Spanned::new(ast::Filter { name, expr: Some(expr), args }, span))
}

/// Returns true if an expression is a constant such as a string or a number, not a list or a map.
fn is_plain(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Const(constant) => constant.value.as_object().is_none(),
        Expr::UnaryOp(unary) => is_plain(&unary.expr),
        _ => false,
    }
}

impl Copy {
    pub(super) fn exprs<'s>(&mut self, exprs: &[Expr<'s>]) -> Result<Vec<Expr<'s>>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// Copies an expression and charges for reading its value, unless it is a constant.
    fn read<'s>(&mut self, expr: &Expr<'s>) -> Result<Expr<'s>> {
        let copy = self.expr(expr)?;
        Ok(if is_plain(expr) { copy } else { filtered(READ, copy, Vec::new()) })
    }

    fn key<'s>(&mut self, expr: &Expr<'s>) -> Result<Expr<'s>> {
        let copy = self.expr(expr)?;
        Ok(if is_plain(expr) { copy } else { filtered(KEY, copy, Vec::new()) })
    }

    pub(super) fn expr<'s>(&mut self, expr: &Expr<'s>) -> Result<Expr<'s>> {
        self.deeper(expr.span(), |this| this.copied(expr))
    }

    fn copied<'s>(&mut self, expr: &Expr<'s>) -> Result<Expr<'s>> {
        let span = expr.span();
        Ok(match expr {
            Expr::Var(of) => Expr::Var(Spanned::new(ast::Var { id: of.id }, span)),
            Expr::Const(of) => Expr::Const(Spanned::new(ast::Const { value: of.value.clone() }, span)),
            Expr::Slice(of) => {
                let mut part = |expr: &Option<Expr<'s>>| expr.as_ref().map(|expr| self.expr(expr)).transpose();
                let (start, stop, step) = (part(&of.start)?, part(&of.stop)?, part(&of.step)?);
                let copy = ast::Slice { expr: self.expr(&of.expr)?, start, stop, step };
                filtered(SETTLED, Expr::Slice(Spanned::new(copy, span)), Vec::new())
            }
            Expr::UnaryOp(of) => {
                let not = matches!(of.op, ast::UnaryOpKind::Not);
                let op = if not { ast::UnaryOpKind::Not } else { ast::UnaryOpKind::Neg };
                Expr::UnaryOp(Spanned::new(ast::UnaryOp { op, expr: self.expr(&of.expr)? }, span))
            }
            Expr::BinOp(of) => self.binary(of)?,
            Expr::Compare(of) => {
                let ops = of.ops.iter().map(|op| Ok(ast::CompareOp { op: op.op, expr: self.read(&op.expr)? }));
                let ops = ops.collect::<Result<_>>()?;
                Expr::Compare(Spanned::new(ast::Compare { expr: self.read(&of.expr)?, ops }, span))
            }
            Expr::IfExpr(of) => {
                let copy = ast::IfExpr {
                    test_expr: self.expr(&of.test_expr)?,
                    true_expr: self.expr(&of.true_expr)?,
                    false_expr: of.false_expr.as_ref().map(|expr| self.expr(expr)).transpose()?,
                };
                Expr::IfExpr(Spanned::new(copy, span))
            }
            Expr::Filter(of) => {
                let expr = of.expr.as_ref().map(|expr| self.expr(expr)).transpose()?;
                Expr::Filter(Spanned::new(ast::Filter { name: of.name, expr, args: self.args(&of.args)? }, span))
            }
            Expr::Test(of) => {
                let copy = ast::Test { name: of.name, expr: self.expr(&of.expr)?, args: self.args(&of.args)? };
                Expr::Test(Spanned::new(copy, span))
            }
            Expr::GetAttr(of) => {
                Expr::GetAttr(Spanned::new(ast::GetAttr { expr: self.expr(&of.expr)?, name: of.name }, span))
            }
            Expr::GetItem(of) => {
                let copy = ast::GetItem { expr: self.expr(&of.expr)?, subscript_expr: self.key(&of.subscript_expr)? };
                Expr::GetItem(Spanned::new(copy, span))
            }
            Expr::Call(of) => match &of.expr {
                Expr::GetAttr(attr) if OF_MAPS.contains(&attr.name) => {
                    let name = Expr::Const(Spanned::new(ast::Const { value: Value::from(attr.name) }, span));
                    let mut args = self.args(&of.args)?;
                    args.insert(0, CallArg::Pos(name));
                    filtered(METHOD, self.expr(&attr.expr)?, args)
                }
                _ => Expr::Call(self.call(of)?),
            },
            Expr::List(of) => Expr::List(Spanned::new(ast::List { items: self.exprs(&of.items)? }, span)),
            Expr::Map(of) => {
                let keys = of.keys.iter().map(|key| self.key(key)).collect::<Result<_>>()?;
                Expr::Map(Spanned::new(ast::Map { keys, values: self.exprs(&of.values)? }, span))
            }
        })
    }

    fn binary<'s>(&mut self, of: &Spanned<ast::BinOp<'s>>) -> Result<Expr<'s>> {
        let span = of.span();
        let around = |name: &'static str, left, right| {
            let (left, right) = (filtered(name, left, Vec::new()), filtered(name, right, Vec::new()));
            Expr::BinOp(Spanned::new(ast::BinOp { op: of.op, left, right }, span))
        };
        Ok(match of.op {
            BinOpKind::Concat => around(TEXT, self.expr(&of.left)?, self.expr(&of.right)?),
            BinOpKind::Add => filtered(SETTLED, around(PART, self.expr(&of.left)?, self.expr(&of.right)?), Vec::new()),
            BinOpKind::Mul => filtered(TIMES, self.expr(&of.left)?, vec![CallArg::Pos(self.expr(&of.right)?)]),
            // `'%s %s' % (a, b)` has two arguments, `'%s' % list` has one.
            BinOpKind::Rem => {
                let several = Value::from(matches!(of.right, Expr::List(_)));
                let several = Expr::Const(Spanned::new(ast::Const { value: several }, span));
                let args = vec![CallArg::Pos(self.expr(&of.right)?), CallArg::Pos(several)];
                filtered(REMAINDER, self.expr(&of.left)?, args)
            }
            // For constants, minijinja computes true or false, whereas Python returns one of the operands.
            BinOpKind::ScAnd | BinOpKind::ScOr => {
                let left = self.expr(&of.left)?;
                let left = if left.as_const().is_some() { filtered(READ, left, Vec::new()) } else { left };
                Expr::BinOp(Spanned::new(ast::BinOp { op: of.op, left, right: self.expr(&of.right)? }, span))
            }
            BinOpKind::Sub | BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Pow => {
                let copy = ast::BinOp { op: of.op, left: self.expr(&of.left)?, right: self.expr(&of.right)? };
                Expr::BinOp(Spanned::new(copy, span))
            }
            BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte
            | BinOpKind::In => {
                let copy = ast::BinOp { op: of.op, left: self.read(&of.left)?, right: self.read(&of.right)? };
                Expr::BinOp(Spanned::new(copy, span))
            }
        })
    }

    fn args<'s>(&mut self, args: &[CallArg<'s>]) -> Result<Vec<CallArg<'s>>> {
        let copies = args.iter().map(|arg| match arg {
            CallArg::Pos(expr) => Ok(CallArg::Pos(self.expr(expr)?)),
            CallArg::Kwarg(name, expr) => Ok(CallArg::Kwarg(name, self.expr(expr)?)),
            CallArg::PosSplat(expr) | CallArg::KwargSplat(expr) => {
                Err(refused(expr.span(), "arguments such as `*list` or `**map` are not supported"))
            }
        });
        copies.collect()
    }

    pub(super) fn call<'s>(&mut self, of: &Spanned<ast::Call<'s>>) -> Result<Spanned<ast::Call<'s>>> {
        self.deeper(of.span(), |this| {
            let mut args = this.args(&of.args)?;
            // `loop.changed` compares its arguments.
            if matches!(&of.expr, Expr::GetAttr(attr) if attr.name == "changed") {
                let paid = args.into_iter().map(|arg| match arg {
                    CallArg::Pos(expr) => CallArg::Pos(filtered(READ, expr, Vec::new())),
                    other => other,
                });
                args = paid.collect();
            }
            Ok(Spanned::new(ast::Call { expr: this.expr(&of.expr)?, args }, of.span()))
        })
    }
}
