//! What kernels take, as their PTX says it. The driver reads as many arguments as a kernel has
//! parameters, however many it is given: so they are compared here.

use std::collections::BTreeMap;
use std::fmt;

use super::driver::Argument;

/// The kernels of PTX, and what each takes.
pub(super) type Entries = BTreeMap<String, Vec<Param>>;

/// What a kernel takes in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Param {
    /// `.f32`, as PTX calls it; empty if it is none that PTX has.
    kind: String,
    /// How many of them: a struct is an array of bytes.
    array: Option<usize>,
}

impl Param {
    /// `.param .align 8 .b8 pick_1_param_3[64]`
    fn parse(text: &str) -> Self {
        const KINDS: [&str; 16] = [
            ".b8", ".b16", ".b32", ".b64", ".b128", ".u8", ".u16", ".u32", ".u64", ".s8", ".s16",
            ".s32", ".s64", ".f16", ".f32", ".f64",
        ];
        let (head, array) = match text.split_once('[') {
            Some((head, rest)) => (head, Some(rest.split(']').next().unwrap_or(rest))),
            None => (text, None),
        };
        let kind = head.split_whitespace().find(|word| KINDS.contains(word)).unwrap_or_default();
        // One without a number is as long as nothing that is handed over.
        let array = array.map(|n| n.trim().parse().unwrap_or(0));
        Param { kind: kind.to_owned(), array }
    }

    fn takes(&self, argument: &Argument) -> bool {
        let kinds: &[&str] = match argument {
            Argument::Address(_) | Argument::U64(_) => &[".u64", ".s64", ".b64"],
            Argument::F32(_) => &[".f32", ".b32"],
            Argument::F64(_) => &[".f64", ".b64"],
            Argument::Eight(_) => return self.kind == ".b8" && self.array == Some(64),
        };
        self.array.is_none() && kinds.contains(&self.kind.as_str())
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "of a kind that is not known" } else { &self.kind };
        match self.array {
            None => f.write_str(kind),
            Some(n) => write!(f, "{kind}[{n}]"),
        }
    }
}

/// How what is handed over would be declared.
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Argument::Address(_) => ".u64 address",
            Argument::U64(_) => ".u64",
            Argument::F32(_) => ".f32",
            Argument::F64(_) => ".f64",
            Argument::Eight(_) => ".b8[64]",
        })
    }
}

/// The kernels that the PTX has.
pub(super) fn entries(ptx: &str) -> Entries {
    let ptx = without_comments(ptx);
    let heads = ptx.split(".entry").skip(1).filter(|head| head.starts_with(char::is_whitespace));
    heads.map(entry).collect()
}

/// What stands behind `.entry`: a name, and in brackets what it takes, if it takes anything.
fn entry(head: &str) -> (String, Vec<Param>) {
    let head = head.split(['{', ';']).next().unwrap_or(head);
    let (name, params) = head.split_once('(').unwrap_or((head, ""));
    let params = params.split(')').next().unwrap_or(params);
    let params = params.split(',').filter(|param| !param.trim().is_empty()).map(Param::parse);
    // Without brackets the name may have directives behind it.
    let name = name.split_whitespace().next().unwrap_or_default();
    (name.to_owned(), params.collect())
}

fn without_comments(ptx: &str) -> String {
    let mut left = ptx;
    let mut kept = String::with_capacity(ptx.len());
    while let Some(at) = left.find("//").into_iter().chain(left.find("/*")).min() {
        kept.push_str(&left[..at]);
        kept.push(' ');
        let end = if left[at..].starts_with("//") { "\n" } else { "*/" };
        left = match left[at + 2..].find(end) {
            Some(n) => &left[at + 2 + n + end.len()..],
            None => "",
        };
    }
    kept.push_str(left);
    kept
}

/// Why a kernel that takes `params` can't be given `arguments`, if it can't.
pub(super) fn misfit(params: &[Param], arguments: &[Argument]) -> Option<String> {
    let fits = |(param, argument): (&Param, &Argument)| param.takes(argument);
    if params.len() == arguments.len() && params.iter().zip(arguments).all(fits) {
        return None;
    }
    let (takes, given) = (list(params, "parameter"), list(arguments, "argument"));
    Some(format!("it takes {takes}, but is given {given}"))
}

/// `3 parameters (.u64, .u64, .f32)`
fn list(all: &[impl fmt::Display], what: &str) -> String {
    let shown: Vec<_> = all.iter().map(ToString::to_string).collect();
    match shown.len() {
        0 => format!("no {what}s"),
        1 => format!("1 {what} ({})", shown[0]),
        n => format!("{n} {what}s ({})", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(ptx: &str, name: &str) -> Vec<String> {
        entries(ptx)[name].iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_kernel_takes_is_read_from_its_ptx() {
        let ptx = "// .entry not(.param .u64 a)\n.visible .entry scale(\n\t.param .u64 .ptr .global \
                   .align 4 scale_param_0,\n\t.param .u64 b, /* , .param .u32 c */\n\t.param .f32 d\n)\n\
                   .maxntid 256, 1, 1\n{ ret; }\n.entry nothing\n{ ret; }\n\
                   .weak .entry packed (.param .align 8 .b8 p[64]) { ret; }";
        assert_eq!(kinds(ptx, "scale"), [".u64", ".u64", ".f32"]);
        assert_eq!(kinds(ptx, "packed"), [".b8[64]"]);
        assert!(entries(ptx)["nothing"].is_empty());
        assert_eq!(entries(ptx).len(), 3);
    }

    #[test]
    fn all_of_our_own_kernels_are_read() {
        let all = entries(super::super::KERNELS);
        assert_eq!(all.len(), super::super::KERNELS.matches(".visible .entry").count());
        assert!(all.values().flatten().all(|param| !param.kind.is_empty()));
        assert_eq!(
            kinds(super::super::KERNELS, "pick_4"),
            [".u64", ".u64", ".u64", ".b8[64]", ".b8[64]", ".u64"]
        );
    }

    #[test]
    fn arguments_that_are_too_few_or_of_another_width_do_not_fit() {
        let ptx = ".entry f(.param .u64 a, .param .u64 b, .param .f32 c) {}";
        let params = &entries(ptx)["f"];
        let (address, n, x) = (Argument::Address(1), Argument::U64(2), Argument::F32(3.0));
        assert_eq!(misfit(params, &[address, n, x]), None);
        assert_eq!(
            misfit(params, &[address, n]).expect("too few"),
            "it takes 3 parameters (.u64, .u64, .f32), but is given 2 arguments (.u64 address, .u64)"
        );
        for wrong in [[address, n, Argument::F64(3.0)], [address, x, x]] {
            assert!(misfit(params, &wrong).is_some());
        }
        assert!(misfit(params, &[address, n, x, x]).is_some());
    }
}
