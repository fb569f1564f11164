//! Dependency graph from `cargo metadata`, as far as the rules need it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

/// A package, ours or third-party.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// Name in its manifest.
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression.
    pub(crate) licence: Option<String>,
    /// Whether it is a crate of this workspace.
    pub(crate) ours: bool,
    /// Names of its normal dependencies.
    pub(crate) normal: BTreeSet<String>,
    /// Names of its development dependencies.
    pub(crate) dev: BTreeSet<String>,
    /// Package ids of its normal dependencies.
    links: Vec<String>,
}

/// Our crates and all their dependencies on this machine.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    /// Packages by cargo's package id.
    pub(crate) all: BTreeMap<String, Package>,
}

impl Packages {
    /// Parses the output of `cargo metadata --format-version 1`.
    pub(crate) fn parse(json: &str) -> Result<Packages> {
        let value: Value = serde_json::from_str(json).context("cargo metadata did not print JSON")?;
        let texts = |v: &Value| -> Vec<String> {
            let list = v.as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let members: BTreeSet<String> = texts(&value["workspace_members"]).into_iter().collect();
        let mut names = BTreeMap::new();
        let mut described = BTreeMap::new();
        for package in array(&value["packages"]) {
            let id = package["id"].as_str().unwrap_or_default().to_owned();
            names.insert(id.clone(), package["name"].as_str().unwrap_or_default().to_owned());
            described.insert(id, package);
        }
        let mut all = BTreeMap::new();
        for node in array(&value["resolve"]["nodes"]) {
            let id = node["id"].as_str().unwrap_or_default().to_owned();
            let package =
                described.get(&id).context("cargo metadata resolves a package that it does not list")?;
            let mut entry = Package {
                name: names.get(&id).cloned().unwrap_or_default(),
                version: package["version"].as_str().unwrap_or_default().to_owned(),
                licence: package["license"].as_str().map(str::to_owned),
                ours: members.contains(&id),
                ..Package::default()
            };
            for dep in array(&node["deps"]) {
                let target = dep["pkg"].as_str().unwrap_or_default();
                let Some(name) = names.get(target) else { continue };
                for kind in array(&dep["dep_kinds"]) {
                    if kind["kind"].as_str() == Some("dev") {
                        entry.dev.insert(name.clone());
                    } else {
                        entry.normal.insert(name.clone());
                        entry.links.push(target.to_owned());
                    }
                }
            }
            all.insert(id, entry);
        }
        Ok(Packages { all })
    }

    /// Our own crates.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.all.values().filter(|p| p.ours)
    }

    /// Everything that is built into a crate, with the package that depends on it; without the crate itself.
    pub(crate) fn closure(&self, name: &str) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        let mut open: Vec<&Package> = self.all.values().filter(|p| p.name == name).collect();
        while let Some(package) = open.pop() {
            for id in &package.links {
                if let Some(next) = self.all.get(id)
                    && !found.contains_key(next.name.as_str())
                {
                    found.insert(next.name.as_str(), package.name.as_str());
                    open.push(next);
                }
            }
        }
        found
    }

    /// Packages present in more than one version.
    pub(crate) fn duplicates(&self) -> Vec<(&str, Vec<&str>)> {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for package in self.all.values() {
            versions.entry(&package.name).or_default().push(&package.version);
        }
        versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect()
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Test helper: packages from lines `name: normal normal | dev dev`.
#[cfg(test)]
pub(crate) fn test_packages(lines: &[&str]) -> Packages {
    let mut packages = Packages::default();
    for line in lines {
        let (name, uses) = line.split_once(':').unwrap();
        let (normal, dev) = uses.split_once('|').unwrap_or((uses, ""));
        let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<String>>();
        let package = Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT".to_owned()),
            ours: name.starts_with("throng-"),
            normal: set(normal),
            dev: set(dev),
            links: set(normal).into_iter().collect(),
        };
        packages.all.insert(name.to_owned(), package);
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_metadata_is_parsed() {
        let json = r#"{
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "throng-a", "version": "0.1.0", "license": "Apache-2.0"},
                {"id": "b", "name": "b", "version": "1.0.0", "license": null},
                {"id": "c", "name": "b", "version": "2.0.0", "license": "MIT"}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}
                ]},
                {"id": "b", "deps": []},
                {"id": "c", "deps": []}
            ]}
        }"#;
        let packages = Packages::parse(json).unwrap();
        let a = packages.ours().next().unwrap();
        assert_eq!((a.name.as_str(), a.normal.len(), a.dev.len()), ("throng-a", 1, 1));
        assert_eq!(packages.duplicates(), [("b", vec!["1.0.0", "2.0.0"])]);
        assert!(packages.all["b"].licence.is_none());
        assert!(Packages::parse("no").is_err());
    }

    #[test]
    fn the_closure_names_the_crate_that_brings_a_package() {
        let packages = test_packages(&["throng-a: b", "b: c", "c:", "d:"]);
        let closure = packages.closure("throng-a");
        assert_eq!(closure.len(), 2);
        assert_eq!(closure["c"], "b");
    }
}
