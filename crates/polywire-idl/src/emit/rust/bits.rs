//! Emits bitmasks and bitsets: structures around an integer, with a method for each flag or field.

use polywire_core::schema::{BitField, Def, DefId, DefKind, Flag, Type};

use super::super::EmitError;
use super::Writer;
use super::names::{Scope, raw, screaming, snake};

const DERIVES: &str = "#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, polywire::Message)]";

impl Writer<'_> {
    pub(super) fn bitmask(&self, id: DefId, bit_bound: u8, flags: &[Flag]) -> Result<Vec<String>, EmitError> {
        let name = raw(self.names.type_name(id));
        let mut parts = vec![format!("bit_bound = {bit_bound}")];
        for flag in flags {
            self.check_name(&flag.name)?;
            parts.push(format!("{} = {}", flag.name, flag.position));
        }
        let bits = [8, 16, 32].into_iter().find(|bits| bit_bound <= *bits).unwrap_or(64);
        let mut lines = vec![DERIVES.to_string()];
        let attribute = format!("bitmask({})", parts.join(", "));
        lines.extend(self.container(self.schema.def(id), &[attribute]));
        lines.push(format!("pub struct {name}(pub u{bits});"));
        lines.push(String::new());
        lines.push(format!("impl {name} {{"));
        let mut scope = Scope::default();
        for flag in flags {
            let constant = raw(&scope.give(screaming(&flag.name)));
            lines.push(format!("    /// `{}`", flag.name));
            lines.push(format!("    pub const {constant}: Self = Self(1 << {});", flag.position));
        }
        lines.extend([
            String::new(),
            "    /// True if all flags of `other` are set.".into(),
            "    pub const fn contains(self, other: Self) -> bool {".into(),
            "        self.0 & other.0 == other.0".into(),
            "    }".into(),
            "}".into(),
        ]);
        Ok(lines)
    }

    pub(super) fn bitset(&self, id: DefId, def: &Def) -> Result<Vec<String>, EmitError> {
        let DefKind::Bitset { base, fields } = &def.kind else { return Ok(Vec::new()) };
        let mut parts: Vec<String> = base
            .iter()
            .map(|base| format!("base = \"{}\"", self.names.path(self.names.module_of(id), *base)))
            .collect();
        for field in fields {
            parts.push(self.bitset_part(field)?);
        }
        let name = raw(self.names.type_name(id));
        let mut lines = vec![DERIVES.to_string()];
        lines.extend(self.container(def, &[format!("bitset({})", parts.join(", "))]));
        lines.push(format!("pub struct {name}(pub u64);"));
        lines.push(String::new());
        lines.push(format!("impl {name} {{"));
        let mut scope = Scope::default();
        for field in self.schema.bit_fields(id) {
            if let Some(name) = &field.name {
                if !lines.last().is_some_and(|line| line.ends_with("{")) {
                    lines.push(String::new());
                }
                lines.extend(accessors(field, name, &mut scope));
            }
        }
        lines.push("}".into());
        Ok(lines)
    }

    /// `name(width)`, followed by the type if it is not the default for the width.
    fn bitset_part(&self, field: &BitField) -> Result<String, EmitError> {
        let name = field.name.as_deref().unwrap_or("_");
        if field.name.is_some() {
            self.check_name(name)?;
        }
        Ok(match BitField::new("", field.width).ty == field.ty {
            true => format!("{name}({})", field.width),
            false => format!("{name}({}, \"{}\")", field.width, field.ty.keyword()),
        })
    }
}

fn accessors(field: &BitField, idl_name: &str, scope: &mut Scope) -> Vec<String> {
    let name = scope.give(snake(idl_name));
    let setter = scope.give(format!("set_{name}"));
    let (position, width) = (u32::from(field.position), u32::from(field.width));
    let mask = u64::MAX >> (64 - width);
    let (down, placed) = match position {
        0 => ("self.0".to_string(), mask_text(mask)),
        _ => (format!("(self.0 >> {position})"), format!("({} << {position})", mask_text(mask))),
    };
    let cast = |bits: u32, letter: char, text: String| match (bits, letter) {
        (64, 'u') => ("u64".to_string(), text),
        _ => (format!("{letter}{bits}"), format!("({text}) as {letter}{bits}")),
    };
    // Shifting left until the sign is the topmost bit, and right again, extends the sign.
    let signed = |bits: u32| {
        let (up, back) = (64 - position - width, 64 - width);
        let raised = if up == 0 { "self.0".to_string() } else { format!("(self.0 << {up})") };
        match bits {
            64 => ("i64".to_string(), format!("({raised} as i64) >> {back}")),
            _ => cast(bits, 'i', format!("({raised} as i64) >> {back}")),
        }
    };
    let unsigned = |bits: u32| cast(bits, 'u', format!("{down} & {}", mask_text(mask)));
    let (ty, get) = match field.ty {
        Type::Bool => ("bool".to_string(), format!("{down} & 1 != 0")),
        Type::Int8 => signed(8),
        Type::Int16 => signed(16),
        Type::Int32 => signed(32),
        Type::Int64 => signed(64),
        Type::Octet | Type::Uint8 => unsigned(8),
        Type::Uint16 => unsigned(16),
        Type::Uint32 => unsigned(32),
        _ => unsigned(64),
    };
    let value = if ty == "u64" { "value" } else { "value as u64" };
    let set = match position {
        0 => format!("({value} & {})", mask_text(mask)),
        _ => format!("(({value} & {}) << {position})", mask_text(mask)),
    };
    vec![
        format!("    /// `{idl_name}`"),
        format!("    pub const fn {}(self) -> {ty} {{", raw(&name)),
        format!("        {get}"),
        "    }".into(),
        String::new(),
        format!("    /// Sets `{idl_name}`; excess bits are dropped."),
        format!("    pub const fn {}(&mut self, value: {ty}) {{", raw(&setter)),
        format!("        self.0 = (self.0 & !{placed}) | {set};"),
        "    }".into(),
    ]
}

fn mask_text(mask: u64) -> String {
    format!("{mask:#x}")
}
