//! Items by path: is there one, in the sources of this checkout, that ships?

use std::{
    fs,
    path::{Path, PathBuf},
};
use syn::{ImplItem, Item, Type};

/// Finds the item that a path such as `raddle_runtime::marks::Marks::claim_write` names where it is defined, and returns its
/// file.
pub fn find(root: &Path, anchor: &str) -> Result<PathBuf, String> {
    let names: Vec<&str> = anchor.split("::").collect();
    let short = names[0].strip_prefix("raddle_").unwrap_or(names[0]);
    let folders = ["crates", "backends", "."].map(|parent| root.join(parent).join(short).join("src"));
    let roots = folders.into_iter().flat_map(|folder| ["lib.rs", "main.rs"].map(|name| folder.join(name)));
    let roots: Vec<_> = roots.filter(|file| file.is_file()).collect();
    if roots.is_empty() {
        return Err(format!("{anchor}: there is no crate {}", names[0]));
    }
    for file in roots {
        let folder = file.parent().expect("it is in one").to_path_buf();
        let found = parse(&file).and_then(|items| within(&items, file, folder, &names[1..]));
        if let Some(file) = found.map_err(|error| format!("{anchor}: {error}"))? {
            return Ok(file);
        }
    }
    Err(format!("{anchor}: there is no such item"))
}

fn parse(file: &Path) -> Result<Vec<Item>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(parsed.items)
}

/// `folder` holds the files of modules that are declared here.
fn within(items: &[Item], file: PathBuf, folder: PathBuf, names: &[&str]) -> Result<Option<PathBuf>, String> {
    let Some((first, rest)) = names.split_first() else { return Ok(Some(file)) };
    for item in items {
        let Item::Mod(module) = item else { continue };
        if module.ident != *first || module.attrs.iter().any(names_test) {
            continue;
        }
        let folder = folder.join(first);
        if let Some((_, items)) = &module.content {
            return within(items, file, folder, rest);
        }
        let files = [folder.with_extension("rs"), folder.join("mod.rs")];
        let file = files.into_iter().find(|file| file.is_file());
        let file = file.ok_or_else(|| format!("the module {first} has no file"))?;
        return within(&parse(&file)?, file, folder, rest);
    }
    let found = match rest {
        [] => items.iter().any(|item| name(item).is_some_and(|name| name == *first)),
        [member] => items.iter().any(|item| has_member(item, first, member)),
        _ => false,
    };
    Ok(found.then_some(file))
}

/// Is it an attribute such as `#[cfg(test)]`?
fn names_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string();
    list.path.is_ident("cfg") && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

fn name(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Const(item) => Some(&item.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Macro(item) => item.ident.as_ref(),
        _ => None,
    }
}

/// Methods, constants and variants of a type, methods of a trait.
fn has_member(item: &Item, owner: &str, member: &str) -> bool {
    let is_member = |item: &ImplItem| match item {
        ImplItem::Fn(item) => item.sig.ident == member,
        ImplItem::Const(item) => item.ident == member,
        _ => false,
    };
    match item {
        Item::Impl(item) => {
            let Type::Path(of) = &*item.self_ty else { return false };
            let is_owner = of.path.segments.last().is_some_and(|segment| segment.ident == owner);
            is_owner && item.items.iter().any(is_member)
        }
        Item::Enum(item) => item.ident == owner && item.variants.iter().any(|one| one.ident == member),
        Item::Trait(item) => {
            let is_method =
                |one: &syn::TraitItem| matches!(one, syn::TraitItem::Fn(one) if one.sig.ident == member);
            item.ident == owner && item.items.iter().any(is_method)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_where_they_are_defined() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for (anchor, file) in [
            ("raddle_runtime::marks::Marks::claim_write", "marks.rs"),
            ("raddle_sync::raise", "lib.rs"),
            ("raddle_sync::lock::Rank::Stream", "lock.rs"),
            ("raddle_hal::Device::submit", "lib.rs"),
            ("raddle_cpu::kernels::pointwise", "pointwise.rs"),
        ] {
            assert_eq!(find(root, anchor).unwrap().file_name().unwrap(), file, "{anchor}");
        }
        for (anchor, error) in [
            ("raddle_none::x", "raddle_none::x: there is no crate raddle_none"),
            (
                "raddle_runtime::marks::Marks::none",
                "raddle_runtime::marks::Marks::none: there is no such item",
            ),
            ("raddle_runtime::oracle::open", "raddle_runtime::oracle::open: there is no such item"),
        ] {
            assert_eq!(find(root, anchor).unwrap_err(), error);
        }
    }
}
