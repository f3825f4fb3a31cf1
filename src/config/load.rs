//! From file, environment and flags to one validated configuration.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{Config, ConfigError};

/// `SERIATIM__STORE__URL` sets `store.url`: two underscores stand for the dot.
pub const ENV_PREFIX: &str = "SERIATIM__";

/// What stands above the file, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Variables of the environment, as (name, value).
    pub environment: Vec<(String, String)>,
    /// Flags, as (dotted key, value).
    pub flags: Vec<(String, String)>,
}

impl Overrides {
    /// The variables of this process that are meant for us, and these flags.
    pub fn from_environment(flags: Vec<(String, String)>) -> Self {
        let ours = |(name, _): &(String, String)| name.starts_with(ENV_PREFIX);
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(ours)
            .collect();
        Overrides { environment, flags }
    }
}

/// Where a configuration comes from, to be read again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub file: Option<PathBuf>,
    pub overrides: Overrides,
}

impl Source {
    pub fn load(&self) -> Result<Config, ConfigError> {
        load(self.file.as_deref(), &self.overrides)
    }

    /// What the file says at this moment, to see whether it has changed.
    pub fn content(&self) -> Option<Vec<u8>> {
        fs::read(self.file.as_ref()?).ok()
    }
}

/// Reads, overlays and validates. Without a file the defaults are the base.
pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Config, ConfigError> {
    let table = match file {
        Some(path) => read(path)?,
        None => defaults(),
    };
    overlay(table, overrides)
}

pub(super) fn overlay(mut table: Table, overrides: &Overrides) -> Result<Config, ConfigError> {
    let mut config = parse(&table, "the built-in defaults")?;
    for (name, value) in &overrides.environment {
        let key = name[ENV_PREFIX.len()..].to_lowercase().replace("__", ".");
        set(&mut table, &key, value, name)?;
        config = parse(&table, name)?;
    }
    for (key, value) in &overrides.flags {
        let origin = format!("--set {key}");
        set(&mut table, key, value, &origin)?;
        config = parse(&table, &origin)?;
    }
    config.validate()?;
    Ok(config)
}

/// Parsed after each step, so that an error names the step that brought it.
fn parse(table: &Table, origin: &str) -> Result<Config, ConfigError> {
    Value::Table(table.clone()).try_into().map_err(|error: toml::de::Error| ConfigError::Malformed {
        origin: origin.to_owned(),
        reason: one_line(&error),
    })
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are a table")
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::Unreadable { path: shown.clone(), reason: error.to_string() })?;
    table_of(&text, &shown)
}

pub(super) fn table_of(text: &str, origin: &str) -> Result<Table, ConfigError> {
    let malformed = |error: toml::de::Error| ConfigError::Malformed {
        origin: origin.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    };
    // Parsed twice, because only the first of the two errors knows the line.
    toml::from_str::<Config>(text).map_err(malformed)?;
    toml::from_str(text).map_err(malformed)
}

/// Sections within each other: `topics`, a topic, `lifecycle`, `transitions`. Far more would be
/// nested as deeply, and overflow the stack.
const SECTIONS_MAX: usize = 4;

/// Puts a value at a dotted key. It is read as TOML where the default is not a text.
fn set(table: &mut Table, key: &str, value: &str, origin: &str) -> Result<(), ConfigError> {
    let malformed = |reason: String| ConfigError::Malformed { origin: origin.to_owned(), reason };
    let mut steps: Vec<&str> = key.split('.').collect();
    let last =
        steps.pop().filter(|last| !last.is_empty()).ok_or_else(|| malformed("names no key".to_owned()))?;
    if steps.len() > SECTIONS_MAX {
        return Err(malformed(format!("no key lies in {} sections", steps.len())));
    }
    let mut place = table;
    for step in steps {
        let inner = place.entry(step).or_insert_with(|| Value::Table(Table::new()));
        place =
            inner.as_table_mut().ok_or_else(|| malformed(format!("{step:?} is a value, not a section")))?;
    }
    place.insert(last.to_owned(), toml_value(value));
    Ok(())
}

/// `5`, `true` and `["a"]` are what they look like; anything else is a text.
fn toml_value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let owned =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        load(None, &Overrides { environment: owned(environment), flags: owned(flags) })
    }

    #[test]
    fn flags_stand_above_the_environment_above_the_file() {
        let environment = [("SERIATIM__STORE__URL", "redis://one:1"), ("SERIATIM__THREADS", "2")];
        let config = with(&environment, &[("store.url", "redis://two:2")]).unwrap();
        assert_eq!((config.store.url.as_str(), config.threads), ("redis://two:2", 2));
    }

    #[test]
    fn a_key_of_countless_sections_is_refused() {
        let deep = with(&[], &[(&"a.".repeat(100_000), "1"), ("x", "1")]).unwrap_err();
        assert!(deep.to_string().ends_with("names no key"));
        let deep = with(&[], &[(&("a.".repeat(100_000) + "a"), "1")]).unwrap_err();
        assert!(deep.to_string().ends_with("no key lies in 100000 sections"));
        assert!(
            with(&[], &[("topics.jobs.lifecycle.transitions.a", "[\"a\"]")])
                .is_err_and(|error| { error.to_string().contains("initial") })
        );
    }

    #[test]
    fn topics_can_be_set_too() {
        let config = with(&[], &[("topics.jobs.partitions", "4"), ("topics.jobs.terminal_types", "[\"x\"]")]);
        let config = config.unwrap();
        assert_eq!(config.topics["jobs"].partitions, 4);
        assert_eq!(config.topics["jobs"].terminal_types, ["x"]);
    }

    #[test]
    fn unknown_keys_are_refused_and_the_known_ones_named() {
        let error = with(&[("SERIATIM__STORE__ULR", "x")], &[]).unwrap_err().to_string();
        assert!(error.starts_with("SERIATIM__STORE__ULR: unknown field `ulr`"), "{error}");
        assert!(error.contains("`url`"), "{error}");
        let error = with(&[], &[("threads.x", "1")]).unwrap_err().to_string();
        assert!(error.contains("\"threads\" is a value, not a section"), "{error}");
        assert!(with(&[], &[("threads", "many")]).unwrap_err().to_string().contains("expected usize"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load(Some(Path::new("no/such.toml")), &Overrides::default()).unwrap_err();
        assert!(error.to_string().starts_with("cannot read no/such.toml:"), "{error}");
    }
}
