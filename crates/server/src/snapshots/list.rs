//! Pages of the list of snapshots.

use workspace_api::snapshots::{Snapshot, SnapshotList, SnapshotSort};
use workspace_catalog::{Catalog, SnapshotOrder};
use workspace_sandbox::Scope;
use workspace_state::{Snapshot as Record, SnapshotId, Store};

use super::conversion::{ListOptions, page_offset, snapshot_to_api};
use super::owners::Snapshots;
use crate::error::ApiError;
use crate::reference_names::ReferenceNames;
use crate::store::with_store;

/// Number of snapshots per batch of a scan.
const SCAN_BATCH_SIZE: u32 = 1_000;

impl Snapshots<'_> {
    /// Returns a page of the snapshots that are visible in the scope. Cancelled when the future is dropped.
    pub(super) async fn page(&self, scope: &Scope, query: ListOptions) -> Result<SnapshotList, ApiError> {
        let names = ReferenceNames::of(scope);
        match scope {
            Scope::Owner(owner) => {
                if query.has_no_filter() {
                    return page_of_owner(self.store, self.catalog, owner, names, &query).await;
                }
                scan_owner(self.store, self.catalog, owner, names, query).await
            }
            // A token of one sandbox lists nothing.
            Scope::Sandbox { .. } => {
                let (page, limit) = (query.page, query.limit);
                Ok(SnapshotList { items: Vec::new(), total: 0, page, limit, next: None })
            }
            Scope::All => scan_store(self.store, names, query).await,
        }
    }
}

fn order(query: &ListOptions) -> SnapshotOrder {
    match query.sort {
        SnapshotSort::Newest => SnapshotOrder::Newest,
        SnapshotSort::Oldest => SnapshotOrder::Oldest,
    }
}

/// Reads only the snapshots of the page. A snapshot that is not in the store makes the page shorter: the CLI may have
/// removed it, or it may be in the store of another server.
async fn page_of_owner(
    store: &Store,
    catalog: &Catalog,
    owner: &str,
    names: ReferenceNames,
    query: &ListOptions,
) -> Result<SnapshotList, ApiError> {
    let (page, limit) = (query.page, query.limit);
    let after = query.cursor.map(|id| id.to_string());
    let skip = page_offset(page, limit) as u64;
    let total = catalog.snapshots().count(owner).await?;
    let mut ids = catalog.snapshots().ids(owner, order(query), after.as_deref(), skip, limit + 1).await?;
    let has_more = ids.len() > limit as usize;
    ids.truncate(limit as usize);
    let read = with_store(store, move |store| {
        let next = ids.last().filter(|_| has_more).cloned();
        let records = read_snapshots(store, &ids)?.into_iter().flatten().collect();
        let items = to_api_list(records, &names.list(store, "")?)?;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        Ok(SnapshotList { items, total, page, limit, next })
    });
    read.await
}

/// Scans all snapshots of an owner in batches, and keeps those of the page.
async fn scan_owner(
    store: &Store,
    catalog: &Catalog,
    owner: &str,
    names: ReferenceNames,
    query: ListOptions,
) -> Result<SnapshotList, ApiError> {
    let order = order(&query);
    let mut scan = with_store(store, move |store| Ok(Scan::new(query, names.list(store, "")?))).await?;
    let mut cursor: Option<String> = None;
    loop {
        let ids = catalog.snapshots().ids(owner, order, cursor.as_deref(), 0, SCAN_BATCH_SIZE).await?;
        let Some(last) = ids.last().cloned() else { break };
        cursor = Some(last);
        scan = with_store(store, move |store| {
            read_snapshots(store, &ids)?.into_iter().flatten().for_each(|record| scan.add(record));
            Ok(scan)
        })
        .await?;
    }
    scan.finish()
}

/// Scans all snapshots of the store.
async fn scan_store(
    store: &Store,
    names: ReferenceNames,
    query: ListOptions,
) -> Result<SnapshotList, ApiError> {
    let scanned = with_store(store, move |store| {
        let mut records = store.snapshots()?;
        if query.sort == SnapshotSort::Newest {
            records.reverse();
        }
        let mut scan = Scan::new(query, names.list(store, "")?);
        records.into_iter().for_each(|record| scan.add(record));
        scan.finish()
    });
    scanned.await
}

/// Reads the snapshots with these ids; `None` for each that is not in the store. Fails as soon as `store` is cancelled.
fn read_snapshots(store: &Store, ids: &[String]) -> Result<Vec<Option<Record>>, ApiError> {
    let read = |id: &String| {
        store.cancel_flag().check().map_err(workspace_state::StoreError::from)?;
        match id.parse::<SnapshotId>() {
            Ok(id) => Ok(store.find_snapshot(&id)?),
            Err(_) => Ok(None),
        }
    };
    ids.iter().map(read).collect()
}

fn to_api_list(records: Vec<Record>, references: &[(String, SnapshotId)]) -> Result<Vec<Snapshot>, ApiError> {
    records.into_iter().map(|record| snapshot_to_api(record, references)).collect()
}

/// Builder of a page from all snapshots, which are added in the order of the list.
struct Scan {
    query: ListOptions,
    references: Vec<(String, SnapshotId)>,
    /// Number of snapshots still to skip.
    to_skip: usize,
    items: Vec<Record>,
    total: usize,
    has_more: bool,
}

impl Scan {
    fn new(query: ListOptions, references: Vec<(String, SnapshotId)>) -> Self {
        let to_skip = page_offset(query.page, query.limit);
        Self { query, references, to_skip, items: Vec::new(), total: 0, has_more: false }
    }

    fn add(&mut self, record: Record) {
        if !self.query.matches(&record, &self.references) {
            return;
        }
        self.total += 1;
        // Ids sort by creation time.
        let is_before = |last: SnapshotId| match self.query.sort {
            SnapshotSort::Newest => record.id >= last,
            SnapshotSort::Oldest => record.id <= last,
        };
        if self.query.cursor.is_some_and(is_before) {
            return;
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
        } else if self.items.len() < self.query.limit as usize {
            self.items.push(record);
        } else {
            self.has_more = true;
        }
    }

    fn finish(self) -> Result<SnapshotList, ApiError> {
        let (page, limit) = (self.query.page, self.query.limit);
        let next = self.items.last().map(|last| last.id.to_string()).filter(|_| self.has_more);
        let items = to_api_list(self.items, &self.references)?;
        Ok(SnapshotList { items, total: self.total, page, limit, next })
    }
}

#[cfg(test)]
mod tests {
    use workspace_api::error_codes;
    use workspace_catalog::sqlite_url;
    use workspace_state::NewSnapshot;

    use super::*;

    fn query(pairs: &[(&str, &str)]) -> ListOptions {
        let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        ListOptions::parse(pairs.collect()).unwrap()
    }

    async fn fixture(directory: &tempfile::TempDir, count: usize) -> (Store, Catalog, Vec<SnapshotId>) {
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let catalog = Catalog::open(&sqlite_url(&directory.path().join("catalog"))).await.unwrap();
        let mut ids = Vec::new();
        for n in 0..count {
            let labels = [("odd".to_owned(), (n % 2).to_string())].into();
            let new = NewSnapshot { labels, ..NewSnapshot::default() };
            let id = store.empty_tree().unwrap().commit(new).unwrap().id;
            catalog.snapshots().add_owner("alice", &id.to_string(), None, 0).await.unwrap();
            ids.push(id);
        }
        ids.sort();
        ids.reverse();
        (store, catalog, ids)
    }

    /// Ids on the page, number of all, cursor of the next page.
    async fn page(
        of: (&Store, &Catalog),
        scope: &Scope,
        pairs: &[(&str, &str)],
    ) -> (Vec<String>, u64, Option<String>) {
        let snapshots = Snapshots { store: of.0, catalog: of.1 };
        let list = snapshots.page(scope, query(pairs)).await.unwrap();
        let list = serde_json::to_value(&list).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let ids = list["items"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect();
        (ids, list["total"].as_u64().unwrap(), list.get("next").map(text))
    }

    #[tokio::test]
    async fn owners_and_admins_get_the_same_pages_with_and_without_filters() {
        let directory = tempfile::tempdir().unwrap();
        let (store, catalog, ids) = fixture(&directory, 7).await;
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        for scope in [Scope::Owner("alice".to_owned()), Scope::All] {
            let of = async |pairs: &[(&str, &str)]| page((&store, &catalog), &scope, pairs).await;
            assert_eq!(of(&[("limit", "3")]).await, (ids[..3].to_vec(), 7, Some(ids[2].clone())));
            let next = of(&[("limit", "3"), ("cursor", &ids[2])]).await;
            assert_eq!(next, (ids[3..6].to_vec(), 7, Some(ids[5].clone())));
            assert_eq!(of(&[("limit", "3"), ("page", "3")]).await, (ids[6..].to_vec(), 7, None));
            assert_eq!(of(&[("limit", "3"), ("page", "4")]).await, (vec![], 7, None));
            assert_eq!(of(&[("limit", "7")]).await, (ids.clone(), 7, None));
            let (odd_ids, ..) = of(&[("label", "odd=1")]).await;
            let (odd, total, next) = of(&[("limit", "2"), ("label", "odd=1")]).await;
            assert_eq!((odd.len(), total, next), (2, 3, odd.last().cloned()));

            let oldest: Vec<String> = ids.iter().rev().cloned().collect();
            let sorted =
                async |pairs: &[(&str, &str)]| of(&[&[("sort", "oldest")][..], pairs].concat()).await;
            assert_eq!(sorted(&[("limit", "3")]).await, (oldest[..3].to_vec(), 7, Some(oldest[2].clone())));
            let next = sorted(&[("limit", "3"), ("cursor", &oldest[2])]).await;
            assert_eq!(next, (oldest[3..6].to_vec(), 7, Some(oldest[5].clone())));
            assert_eq!(sorted(&[("limit", "3"), ("page", "3")]).await, (oldest[6..].to_vec(), 7, None));
            let first = sorted(&[("limit", "2"), ("label", "odd=1")]).await;
            let rest = sorted(&[("limit", "2"), ("label", "odd=1"), ("cursor", &first.0[1])]).await;
            assert_eq!([first.0, rest.0].concat(), odd_ids.iter().rev().cloned().collect::<Vec<_>>());
            assert_eq!((first.1, rest.1, rest.2), (3, 3, None));
        }
        assert_eq!(page((&store, &catalog), &Scope::Owner("bob".to_owned()), &[]).await, (vec![], 0, None));
    }

    #[tokio::test]
    async fn pages_neither_repeat_nor_skip_snapshots_if_some_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let (store, catalog, ids) = fixture(&directory, 8).await;
        store.remove_snapshots(&[ids[1], ids[6]]).unwrap();
        let scope = Scope::Owner("alice".to_owned());
        let (mut paged, mut followed, mut next) = (Vec::new(), Vec::new(), None::<String>);
        for number in ["1", "2", "3", "4"] {
            paged.extend(page((&store, &catalog), &scope, &[("limit", "2"), ("page", number)]).await.0);
            let cursor: Vec<_> = next.iter().map(|id| ("cursor", id.as_str())).collect();
            let (ids, _, after) =
                page((&store, &catalog), &scope, &[&[("limit", "2")], cursor.as_slice()].concat()).await;
            followed.extend(ids);
            next = after;
        }
        let remaining = ids.iter().enumerate().filter(|(at, _)| ![1, 6].contains(at));
        let remaining: Vec<String> = remaining.map(|(_, id)| id.to_string()).collect();
        assert_eq!((paged, followed, next), (remaining.clone(), remaining, None));
    }

    #[tokio::test]
    async fn a_page_reads_only_its_own_snapshots() {
        let directory = tempfile::tempdir().unwrap();
        let (store, catalog, ids) = fixture(&directory, 4).await;
        // The total would be smaller if the page had read the oldest one.
        store.remove_snapshots(&ids[3..]).unwrap();
        let alice = Scope::Owner("alice".to_owned());
        let (first, total, _) = page((&store, &catalog), &alice, &[("limit", "2")]).await;
        assert_eq!((first.len(), total), (2, 4));
        // The page on which it would be is shorter.
        let (last, total, _) = page((&store, &catalog), &alice, &[("limit", "2"), ("page", "2")]).await;
        assert_eq!((last, total), (vec![ids[2].to_string()], 4));
    }

    #[tokio::test]
    async fn a_cancelled_list_reads_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let (store, catalog, ids) = fixture(&directory, 1).await;
        let store = store.with_cancel(store.cancel_flag().child());
        store.cancel_flag().cancel();
        let error = read_snapshots(&store, &[ids[0].to_string()]).unwrap_err();
        assert_eq!(error.code(), error_codes::SHUTTING_DOWN);
        let snapshots = Snapshots { store: &store, catalog: &catalog };
        let scope = Scope::Owner("alice".to_owned());
        assert!(snapshots.page(&scope, query(&[("label", "odd=0")])).await.is_err());
    }
}
