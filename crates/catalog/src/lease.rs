//! Table `leases`: names that one server holds for a limited time.
//!
//! A lease only avoids that two servers do the same work. It does not make their work safe: a server can be
//! suspended, and continue after its lease ended.

use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::Result;
use crate::row::Row;
use crate::statement::Statement;

/// Lease that a server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Name of the lease, such as `merge/prj-…`.
    pub name: String,
    /// Holder of the lease.
    pub server: String,
    /// Number of times that the lease was acquired, by anybody.
    pub epoch: i64,
    /// End of the lease in milliseconds since 1970, by the clock of the holder.
    pub until: i64,
}

/// Queries on the table `leases`.
#[derive(Debug, Clone, Copy)]
pub struct Leases<'c> {
    pub(crate) database: &'c Database,
}

impl Leases<'_> {
    /// Acquires a lease for `ttl` milliseconds. Returns `None` if it has not ended yet, even if `server` itself holds
    /// it: use [`Self::renew`] to extend it.
    pub async fn acquire(&self, name: &str, server: &str, ttl: i64) -> Result<Option<Lease>> {
        let time = now();
        let acquire = Statement::new(
            "INSERT INTO leases (name, server, epoch, until) VALUES ($1, $2, 1, $3) ON CONFLICT (name) DO UPDATE
             SET server = excluded.server, epoch = leases.epoch + 1, until = excluded.until
             WHERE leases.until <= $4 RETURNING name, server, epoch, until",
        );
        let acquire = acquire.text("name", name).text("server", server);
        let acquire = acquire.number(time.saturating_add(ttl)).number(time);
        acquire.optional(&mut *self.database.connection().await?).await?.map(from_row).transpose()
    }

    /// Extends a lease to `ttl` milliseconds from now, also if it has ended and nobody else has acquired it. Returns
    /// `None` if it was released or acquired again.
    pub async fn renew(&self, lease: &Lease, ttl: i64) -> Result<Option<Lease>> {
        let renew = Statement::new(
            "UPDATE leases SET until = $1 WHERE name = $2 AND server = $3 AND epoch = $4 AND until > 0
             RETURNING name, server, epoch, until",
        );
        let renew = renew.number(now().saturating_add(ttl));
        let renew = renew.text("name", &lease.name).text("server", &lease.server).number(lease.epoch);
        renew.optional(&mut *self.database.connection().await?).await?.map(from_row).transpose()
    }

    /// Ends a lease. Has no effect if it was acquired again.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let release =
            Statement::new("UPDATE leases SET until = 0 WHERE name = $1 AND server = $2 AND epoch = $3");
        let release = release.text("name", &lease.name).text("server", &lease.server).number(lease.epoch);
        release.run(&mut *self.database.connection().await?).await?;
        Ok(())
    }
}

fn from_row(row: AnyRow) -> Result<Lease> {
    let row = Row(row);
    Ok(Lease {
        name: row.text("name")?,
        server: row.text("server")?,
        epoch: row.number("epoch")?,
        until: row.number("until")?,
    })
}
