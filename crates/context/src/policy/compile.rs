//! Validation of policies, and their compiled form.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use workspace_merge::Strategies;

use super::access::Access;
use super::document::{PolicyDocument, Rule};
use super::error::{NameError, PolicyError};
use super::glob::Glob;
use super::limits::{GROUPS_MAX, LIST_MAX, MEMBERS_MAX, NAME_MAX, RULES_MAX};
use super::pattern::{Pattern, Rank};

/// A validated policy. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Policy(Arc<CompiledPolicy>);

#[derive(Debug)]
struct CompiledPolicy {
    document: PolicyDocument,
    /// Rules in the order of the document.
    rules: Vec<CompiledRule>,
    /// Members of the groups.
    members: Members,
}

/// A rule with its patterns compiled.
#[derive(Debug)]
struct CompiledRule {
    /// Agents that the rule is for.
    subject: Subject,
    /// Pattern for paths.
    pattern: Arc<Pattern>,
    /// Specificity of `pattern`. Greater is more specific.
    specificity: Arc<[Rank]>,
}

/// Agents that a rule applies to.
#[derive(Debug)]
enum Subject {
    Everybody,
    /// Index of the group, in the order of the names.
    Group(u32),
    Glob(Glob),
    Name(Box<[u8]>),
}

/// Kind of the subject of a rule. Greater is more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubjectKind {
    Everybody,
    Group,
    Glob,
    Name,
}

/// Rule that applies to an agent.
#[derive(Debug, Clone)]
pub(super) struct ApplicableRule {
    /// Index in the document.
    pub(super) index: usize,
    pub(super) pattern: Arc<Pattern>,
    /// Specificity of `pattern`. Greater is more specific.
    pub(super) specificity: Arc<[Rank]>,
    /// Kind of the rule's subject.
    pub(super) subject: SubjectKind,
}

impl ApplicableRule {
    /// Compares the specificity of two rules: first the paths, then the subjects. Greater is more specific.
    pub(super) fn compare_specificity(&self, other: &Self) -> Ordering {
        self.specificity.cmp(&other.specificity).then(self.subject.cmp(&other.subject))
    }
}

/// Members of the groups. A group is named by its index, in the order of the names.
#[derive(Debug, Default)]
struct Members {
    /// Groups by the name of an agent.
    by_name: HashMap<Box<[u8]>, Vec<u32>>,
    /// Globs of agents, each with its group.
    globs: Vec<(Glob, u32)>,
}

impl Policy {
    /// Validates and compiles a policy.
    pub fn compile(document: PolicyDocument) -> Result<Self, PolicyError> {
        check_counts(&document)?;
        let members = Members::compile(&document.groups)?;
        let groups: HashMap<&str, u32> = document.groups.keys().map(String::as_str).zip(0..).collect();
        let strategies = Strategies::default();
        let mut rules = Vec::with_capacity(document.rules.len());
        for (index, rule) in document.rules.iter().enumerate() {
            check_settings(index, rule, &strategies)?;
            let pattern = Pattern::parse(&rule.path).map_err(|source| PolicyError::Path {
                rule: index,
                path: rule.path.clone(),
                source,
            })?;
            let subject = Subject::compile(index, rule, &groups)?;
            let specificity = pattern.specificity().into();
            rules.push(CompiledRule { subject, pattern: Arc::new(pattern), specificity });
        }
        Ok(Self(Arc::new(CompiledPolicy { document, rules, members })))
    }

    /// Returns the policy as it was written.
    pub fn document(&self) -> &PolicyDocument {
        &self.0.document
    }

    pub(super) fn default_access(&self) -> Access {
        self.0.document.default
    }

    pub(super) fn rule(&self, index: usize) -> &Rule {
        &self.0.document.rules[index]
    }

    /// Returns the rules that apply to an agent, the most specific first. Equally specific rules are in the order of
    /// the document.
    pub(super) fn applicable(&self, agent: &str) -> Vec<ApplicableRule> {
        let groups = self.0.members.groups_of(agent.as_bytes());
        let rules = self.0.rules.iter().enumerate().filter(|(_, rule)| rule.subject.applies(agent, &groups));
        let mut applicable: Vec<ApplicableRule> = rules
            .map(|(index, rule)| ApplicableRule {
                index,
                pattern: Arc::clone(&rule.pattern),
                specificity: Arc::clone(&rule.specificity),
                subject: rule.subject.kind(),
            })
            .collect();
        applicable.sort_by(|a, b| b.compare_specificity(a));
        applicable
    }
}

impl Members {
    fn compile(groups: &BTreeMap<String, Vec<String>>) -> Result<Self, PolicyError> {
        let mut members = Self::default();
        for ((group, globs), group_index) in groups.iter().zip(0..) {
            for (member, glob) in globs.iter().enumerate() {
                let parsed = parse_name(glob).map_err(|source| PolicyError::Member {
                    group: group.clone(),
                    member,
                    glob: glob.clone(),
                    source,
                })?;
                match parsed.literal() {
                    Some(name) => members.by_name.entry(name.into()).or_default().push(group_index),
                    None => members.globs.push((parsed, group_index)),
                }
            }
        }
        Ok(members)
    }

    fn groups_of(&self, agent: &[u8]) -> HashSet<u32> {
        let by_name = self.by_name.get(agent).into_iter().flatten().copied();
        let by_glob = self.globs.iter().filter(|(glob, _)| glob.is_match(agent)).map(|(_, group)| *group);
        by_name.chain(by_glob).collect()
    }
}

impl Subject {
    fn compile(index: usize, rule: &Rule, groups: &HashMap<&str, u32>) -> Result<Self, PolicyError> {
        match (&rule.agent, &rule.group) {
            (None, None) => Ok(Self::Everybody),
            (Some(_), Some(_)) => Err(PolicyError::TwoSubjects { rule: index }),
            (Some(glob), None) => {
                let parsed = parse_name(glob).map_err(|source| PolicyError::Agent {
                    rule: index,
                    glob: glob.clone(),
                    source,
                })?;
                Ok(match parsed.literal() {
                    Some(name) => Self::Name(name.into()),
                    None => Self::Glob(parsed),
                })
            }
            (None, Some(group)) => match groups.get(group.as_str()) {
                Some(group_index) => Ok(Self::Group(*group_index)),
                None => Err(unknown_group(index, group, groups)),
            },
        }
    }

    fn applies(&self, agent: &str, groups: &HashSet<u32>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Group(group) => groups.contains(group),
            Self::Glob(glob) => glob.is_match(agent.as_bytes()),
            Self::Name(name) => **name == *agent.as_bytes(),
        }
    }

    fn kind(&self) -> SubjectKind {
        match self {
            Self::Everybody => SubjectKind::Everybody,
            Self::Group(_) => SubjectKind::Group,
            Self::Glob(_) => SubjectKind::Glob,
            Self::Name(_) => SubjectKind::Name,
        }
    }
}

/// Number of group names that an error lists.
const LISTED_GROUPS_MAX: usize = 10;

fn unknown_group(rule: usize, group: &str, groups: &HashMap<&str, u32>) -> PolicyError {
    let mut known: Vec<&str> = groups.keys().copied().collect();
    known.sort_unstable();
    let is_cut = known.len() > LISTED_GROUPS_MAX;
    known.truncate(LISTED_GROUPS_MAX);
    let known = match known.as_slice() {
        [] => "(there are none)".to_owned(),
        names => format!("{}{}", names.join(", "), if is_cut { ", …" } else { "" }),
    };
    PolicyError::UnknownGroup { rule, group: group.to_owned(), known }
}

/// Returns true if a name or glob of agents matches a name. A glob that cannot be parsed matches nothing.
pub(crate) fn name_matches(glob: &str, name: &str) -> bool {
    parse_name(glob).is_ok_and(|glob| glob.is_match(name.as_bytes()))
}

/// Parses a name or glob of agents.
fn parse_name(text: &str) -> Result<Glob, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_MAX {
        return Err(NameError::TooLong);
    }
    Ok(Glob::parse(text)?)
}

fn check_counts(document: &PolicyDocument) -> Result<(), PolicyError> {
    let count = document.rules.len();
    if count > RULES_MAX {
        return Err(PolicyError::TooManyRules { count });
    }
    let count = document.groups.len();
    if count > GROUPS_MAX {
        return Err(PolicyError::TooManyGroups { count });
    }
    let count = document.groups.values().map(Vec::len).sum();
    if count > MEMBERS_MAX {
        return Err(PolicyError::TooManyMembers { count });
    }
    match document.groups.keys().find(|group| !is_valid_length(group)) {
        Some(group) => Err(PolicyError::GroupName { group: group.chars().take(NAME_MAX).collect() }),
        None => Ok(()),
    }
}

fn check_settings(index: usize, rule: &Rule, strategies: &Strategies) -> Result<(), PolicyError> {
    if !rule.has_effect() {
        return Err(PolicyError::NoEffect { rule: index });
    }
    check_strategy(index, rule, strategies)?;
    check_list(index, "keys", rule.keys.iter().flatten())?;
    check_list(index, "schema", rule.schema.iter().flat_map(BTreeMap::keys))?;
    check_list(index, "reviewers", rule.reviewers.iter().flatten())?;
    for (reviewer, glob) in rule.reviewers.iter().flatten().enumerate() {
        parse_name(glob).map_err(|source| PolicyError::Reviewer {
            rule: index,
            reviewer,
            glob: glob.clone(),
            source,
        })?;
    }
    if rule.review_timeout.as_ref().is_some_and(|timeout| timeout.duration().is_none()) {
        return Err(PolicyError::ReviewTimeout { rule: index });
    }
    if let Some(glob) = &rule.escalate_to {
        parse_name(glob).map_err(|source| PolicyError::EscalateTo {
            rule: index,
            glob: glob.clone(),
            source,
        })?;
    }
    Ok(())
}

fn check_strategy(index: usize, rule: &Rule, strategies: &Strategies) -> Result<(), PolicyError> {
    let Some(strategy) = &rule.strategy else { return Ok(()) };
    let known = strategies.get_or_unknown(strategy);
    known.map(drop).map_err(|source| PolicyError::Strategy { rule: index, source })
}

fn check_list<'l>(
    rule: usize,
    field: &'static str,
    list: impl Iterator<Item = &'l String>,
) -> Result<(), PolicyError> {
    for (position, entry) in list.enumerate() {
        if position >= LIST_MAX {
            return Err(PolicyError::LongList { rule, field });
        }
        if !is_valid_length(entry) {
            return Err(PolicyError::Entry { rule, field });
        }
    }
    Ok(())
}

fn is_valid_length(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
}
