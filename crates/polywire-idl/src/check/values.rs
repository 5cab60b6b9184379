//! Evaluates constant expressions.

use std::rc::Rc;

use polywire_core::schema::{DefId, DefKind, Literal, Type};

use super::Checker;
use super::names::Entity;
use crate::ast::{Expr, ExprKind, ScopedName};
use crate::diag::closest;
use crate::source::Span;

/// An intermediate value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Int(i128),
    Float(f64),
    Bool(bool),
    Char(u32),
    String(Rc<str>),
    Enum(DefId, Rc<str>, i32),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Int(_) => "an integer",
            Value::Float(_) => "a floating-point number",
            Value::Bool(_) => "a boolean",
            Value::Char(_) => "a character",
            Value::String(_) => "a string",
            Value::Enum(..) => "a literal of an enum",
        }
    }
}

impl Checker<'_> {
    /// Evaluates an expression to a literal of type `ty`.
    pub(super) fn literal(&mut self, expr: &Expr, ty: &Type) -> Option<Literal> {
        let value = self.value(expr, Some(ty))?;
        self.convert(value, ty, expr.span)
    }

    /// Evaluates an expression to an integer from `min` to `max`.
    pub(super) fn integer(&mut self, expr: &Expr, what: &str, min: i128, max: i128) -> Option<i128> {
        match self.value(expr, None)? {
            Value::Int(value) if (min..=max).contains(&value) => Some(value),
            Value::Int(value) => {
                let message = format!("{what} is {value}, but must be between {min} and {max}");
                self.reporter.error(expr.span, message);
                None
            }
            other => {
                self.reporter.error(expr.span, format!("{what} must be an integer, found {}", other.kind()));
                None
            }
        }
    }

    /// Evaluates an expression. `wanted` is the type of the context: it resolves literals of an
    /// enum and gives the width for `~`.
    pub(super) fn value(&mut self, expr: &Expr, wanted: Option<&Type>) -> Option<Value> {
        Some(match &expr.kind {
            ExprKind::Int(value) => Value::Int(*value),
            ExprKind::Float(value) => Value::Float(*value),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::Char(code) => Value::Char(*code),
            ExprKind::String(text) => Value::String(text.clone()),
            ExprKind::Name(name) => return self.named_value(name, wanted),
            ExprKind::Unary(symbol, operand) => {
                let operand = self.value(operand, wanted)?;
                return self.unary(*symbol, operand, wanted, expr.span);
            }
            ExprKind::Binary(symbol, left, right) => {
                let (left, right) = (self.value(left, wanted), self.value(right, wanted));
                return self.binary(*symbol, left?, right?, expr.span);
            }
            ExprKind::Wrong => return None,
        })
    }

    fn named_value(&mut self, name: &ScopedName, wanted: Option<&Type>) -> Option<Value> {
        let wanted = wanted.map(|ty| self.resolve(ty));
        if let (Some(Type::Def(id)), [only]) = (&wanted, name.parts.as_slice())
            && let Some(value) = self.literal_of(*id, &only.text)
        {
            return Some(value);
        }
        match self.find_entity(name) {
            Some(Entity::Constant(index)) => {
                let constant = &self.constants[index];
                let (ty, value) = (constant.ty.clone(), constant.value.clone());
                Some(self.value_of(&ty, value))
            }
            Some(Entity::Literal(id, index)) | Some(Entity::Flag(id, index)) => self.part_of(id, index),
            Some(_) => {
                self.reporter.error(name.span, format!("'{}' is not a constant", name.text()));
                None
            }
            None => {
                let literals = match wanted {
                    Some(Type::Def(id)) => self.literal_names(id),
                    _ => Vec::new(),
                };
                self.unknown_constant(name, &literals);
                None
            }
        }
    }

    fn value_of(&self, ty: &Type, literal: Literal) -> Value {
        match literal {
            Literal::Bool(value) => Value::Bool(value),
            Literal::Int(value) => Value::Int(value),
            Literal::Float(value) => Value::Float(value),
            Literal::Char(code) => Value::Char(code),
            Literal::String(text) => Value::String(text.into()),
            Literal::Enum(name) => match self.resolve(ty) {
                Type::Def(id) => self.literal_of(id, &name).unwrap_or(Value::Int(0)),
                _ => Value::Int(0),
            },
        }
    }

    /// Looks up a literal or flag of a definition by name.
    pub(super) fn literal_of(&self, id: DefId, name: &str) -> Option<Value> {
        match &self.slots[id.0 as usize].def.as_ref()?.kind {
            DefKind::Enum { literals, .. } => {
                let literal = literals.iter().find(|l| l.name == name)?;
                Some(Value::Enum(id, literal.name.as_str().into(), literal.value))
            }
            DefKind::Bitmask { flags, .. } => {
                let flag = flags.iter().find(|f| f.name == name)?;
                Some(Value::Int(1 << flag.position))
            }
            _ => None,
        }
    }

    fn part_of(&self, id: DefId, index: usize) -> Option<Value> {
        match &self.slots[id.0 as usize].def.as_ref()?.kind {
            DefKind::Enum { literals, .. } => {
                let literal = literals.get(index)?;
                Some(Value::Enum(id, literal.name.as_str().into(), literal.value))
            }
            DefKind::Bitmask { flags, .. } => Some(Value::Int(1 << flags.get(index)?.position)),
            _ => None,
        }
    }

    fn literal_names(&self, id: DefId) -> Vec<Rc<str>> {
        match self.slots[id.0 as usize].def.as_ref().map(|d| &d.kind) {
            Some(DefKind::Enum { literals, .. }) => literals.iter().map(|l| l.name.as_str().into()).collect(),
            Some(DefKind::Bitmask { flags, .. }) => flags.iter().map(|f| f.name.as_str().into()).collect(),
            _ => Vec::new(),
        }
    }

    fn unary(&mut self, symbol: char, operand: Value, wanted: Option<&Type>, span: Span) -> Option<Value> {
        match (symbol, operand) {
            ('+', value @ (Value::Int(_) | Value::Float(_))) => Some(value),
            ('-', Value::Float(value)) => Some(Value::Float(-value)),
            ('-', Value::Int(value)) => Some(Value::Int(-value)),
            ('~', Value::Int(value)) => {
                let unsigned = wanted.and_then(|ty| self.integer_range(ty)).filter(|(min, _)| *min == 0);
                Some(Value::Int(unsigned.map_or(!value, |(_, max)| !value & max)))
            }
            (symbol, other) => {
                self.reporter.error(span, format!("'{symbol}' cannot be applied to {}", other.kind()));
                None
            }
        }
    }

    fn binary(&mut self, symbol: char, left: Value, right: Value, span: Span) -> Option<Value> {
        match (&left, &right) {
            (Value::Int(a), Value::Int(b)) => self.integers(symbol, *a, *b, span).map(Value::Int),
            (Value::Float(a), Value::Float(b)) => self.floats(symbol, *a, *b, span),
            (Value::Int(a), Value::Float(b)) => self.floats(symbol, *a as f64, *b, span),
            (Value::Float(a), Value::Int(b)) => self.floats(symbol, *a, *b as f64, span),
            _ => {
                let (left, right) = (left.kind(), right.kind());
                self.reporter.error(span, format!("'{symbol}' cannot be applied to {left} and {right}"));
                None
            }
        }
    }

    fn integers(&mut self, symbol: char, a: i128, b: i128, span: Span) -> Option<i128> {
        let shift = u32::try_from(b).ok().filter(|b| *b < 64);
        if matches!(symbol, '<' | '>') && shift.is_none() {
            self.reporter.error(span, format!("shift by {b}, but it must be between 0 and 63"));
            return None;
        }
        if matches!(symbol, '/' | '%') && b == 0 {
            self.reporter.error(span, "division by zero");
            return None;
        }
        let value = match symbol {
            '|' => Some(a | b),
            '^' => Some(a ^ b),
            '&' => Some(a & b),
            '<' => a.checked_mul(1 << shift.unwrap_or(0)),
            '>' => Some(a >> shift.unwrap_or(0)),
            '+' => a.checked_add(b),
            '-' => a.checked_sub(b),
            '*' => a.checked_mul(b),
            '/' => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        // No IDL type has more bits, and the product of two values within these bounds does not
        // overflow.
        let value = value.filter(|v| v.unsigned_abs() <= u128::from(u64::MAX));
        if value.is_none() {
            self.reporter.error(span, "the result needs more than 64 bits");
        }
        value
    }

    fn floats(&mut self, symbol: char, a: f64, b: f64, span: Span) -> Option<Value> {
        let value = match symbol {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            // The sign of the NaN that a processor computes differs between processors.
            '/' if a == 0.0 && b == 0.0 => f64::NAN,
            '/' => a / b,
            _ => {
                self.reporter.error(span, format!("'{symbol}' cannot be applied to floating-point numbers"));
                return None;
            }
        };
        // Division by zero follows IEEE 754, because IDL has no other way to write infinity.
        let wanted = symbol == '/' && b == 0.0;
        if !value.is_finite() && !wanted {
            self.reporter.error(span, "the result is not a finite number");
            return None;
        }
        Some(Value::Float(value))
    }

    /// Converts a value to a literal of type `ty`. It must have the kind and range of the type.
    pub(super) fn convert(&mut self, value: Value, ty: &Type, span: Span) -> Option<Literal> {
        let resolved = self.resolve(ty);
        if let Value::String(text) = &value {
            self.spend(text.len());
        }
        if let (Some((min, max)), Value::Int(number)) = (self.integer_range(&resolved), &value) {
            return self.in_range(*number, min, max, ty, span);
        }
        match (&resolved, value) {
            (Type::Bool, Value::Bool(value)) => Some(Literal::Bool(value)),
            (Type::Float32, Value::Float(number)) => self.single(number, span),
            (Type::Float32, Value::Int(number)) => self.single(number as f64, span),
            (Type::Float64 | Type::Float128, Value::Float(number)) => Some(Literal::Float(number)),
            (Type::Float64 | Type::Float128, Value::Int(number)) => Some(Literal::Float(number as f64)),
            (Type::Char8, Value::Char(code)) if code <= 0xFF => Some(Literal::Char(code)),
            (Type::Char16, Value::Char(code)) => Some(Literal::Char(code)),
            (Type::Char8, Value::Int(code @ 0..=0xFF)) => {
                self.reporter.warning(span, "in IDL the value of a char is a character literal");
                Some(Literal::Char(code as u32))
            }
            (Type::String { bound }, Value::String(text)) => self.bounded(text.to_string(), text.len(), *bound, span),
            (Type::WString { bound }, Value::String(text)) => {
                self.bounded(text.to_string(), text.encode_utf16().count(), *bound, span)
            }
            (Type::Def(wanted), Value::Enum(id, name, _)) if *wanted == id => Some(Literal::Enum(name.to_string())),
            (Type::Def(id), value) => self.no_literal_of(*id, &value, span),
            (_, value) => {
                let name = self.type_name(ty);
                self.reporter.error(span, format!("expected a constant of type {name}, found {}", value.kind()));
                None
            }
        }
    }

    fn in_range(&mut self, number: i128, min: i128, max: i128, ty: &Type, span: Span) -> Option<Literal> {
        if (min..=max).contains(&number) {
            return Some(Literal::Int(number));
        }
        let name = self.type_name(ty);
        self.reporter.error(span, format!("{number} does not fit into {name}, which ranges from {min} to {max}"));
        None
    }

    /// Rounds a default of type float to the nearest float, which is what memory can hold.
    fn single(&mut self, number: f64, span: Span) -> Option<Literal> {
        let single = number as f32;
        if single.is_infinite() && number.is_finite() {
            self.reporter.error(span, "the number is too large for a float");
            return None;
        }
        Some(Literal::Float(f64::from(single)))
    }

    fn bounded(&mut self, text: String, length: usize, bound: u32, span: Span) -> Option<Literal> {
        if bound != 0 && length > bound as usize {
            self.reporter.error(span, format!("the string has length {length}, but its bound is {bound}"));
            return None;
        }
        Some(Literal::String(text))
    }

    fn no_literal_of(&mut self, id: DefId, value: &Value, span: Span) -> Option<Literal> {
        let name = self.slots[id.0 as usize].name.clone();
        let literals = self.literal_names(id);
        let meant = match value {
            Value::Enum(_, name, _) => closest(name, literals.iter().map(|l| &**l)).map(str::to_string),
            _ => None,
        };
        let message = match literals.is_empty() {
            true => format!("'{name}' has no constants"),
            false => format!("expected a literal of '{name}', found {}", value.kind()),
        };
        let diagnostic = self.reporter.error(span, message).suggest(meant.as_ref());
        if meant.is_none() && !literals.is_empty() {
            let shown: Vec<String> = literals.iter().take(8).map(|l| format!("'{l}'")).collect();
            diagnostic.note(format!("it has {}", shown.join(", ")));
        }
        None
    }

    /// The smallest and largest value of an integer type or bitmask.
    pub(super) fn integer_range(&self, ty: &Type) -> Option<(i128, i128)> {
        let signed = |bits: u32| Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1));
        let unsigned = |bits: u32| Some((0, (1i128 << bits) - 1));
        match self.resolve(ty) {
            Type::Octet | Type::Uint8 => unsigned(8),
            Type::Uint16 => unsigned(16),
            Type::Uint32 => unsigned(32),
            Type::Uint64 => unsigned(64),
            Type::Int8 => signed(8),
            Type::Int16 => signed(16),
            Type::Int32 => signed(32),
            Type::Int64 => signed(64),
            Type::Def(id) => match &self.slots[id.0 as usize].def.as_ref()?.kind {
                DefKind::Bitmask { bit_bound, .. } => unsigned(u32::from(*bit_bound)),
                _ => None,
            },
            _ => None,
        }
    }
}
