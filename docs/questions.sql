-- Ten questions about the shutdowns of many nodes, for the tables of `ebbtide fleet tables --to tables`
-- (docs/fleet.md). A pod's workload is its name without the controller's suffix, or without its node's name for a
-- static pod.

-- 1. How do shutdowns end?
-- truncated and never-begun: the machine went down before the release.
select kind, outcome, count(*) as shutdowns, count(distinct node) as nodes,
       percentile_disc(0.5) within group (order by took_ms) as p50_ms, max(took_ms) as max_ms
from 'tables/shutdowns.parquet'
group by all
order by shutdowns desc, kind, outcome;

-- 2. Which nodes have too small a grant?
-- ebbtide doctor on such a node names the file that limits it.
select node, max_by(grant_ms, started) as grant_ms, max_by(requested_ms + reserve_ms, started) as needed_ms
from 'tables/shutdowns.parquet'
where grant_ms < requested_ms + reserve_ms
group by node
order by grant_ms, node;

-- 3. Which hooks are slowest?
-- A hook that was cut off took longer.
select namespace, workload, container, kind, count(*) as runs,
       percentile_disc(0.5) within group (order by took_ms) as p50_ms,
       percentile_disc(0.95) within group (order by took_ms) as p95_ms, max(took_ms) as max_ms
from 'tables/hooks.parquet'
where result in ('done', 'failed', 'timed-out')
group by all
order by p95_ms desc, workload, kind;

-- 4. Which hooks do not do their work?
select namespace, workload, kind, count(*) as runs, count(*) filter (where result = 'failed') as failed,
       count(*) filter (where result = 'timed-out') as timed_out
from 'tables/hooks.parquet'
group by all
having failed + timed_out > 0
order by failed + timed_out desc, workload, kind;

-- 5. Which pods are always killed?
select namespace, workload, count(*) as ended,
       count(*) filter (where outcome in ('killed', 'failed')) as killed,
       round(100.0 * count(*) filter (where outcome in ('killed', 'failed')) / count(*), 1) as percent
from 'tables/pods.parquet'
where outcome in ('graceful', 'killed', 'failed')
group by all
having killed > 0
order by percent desc, workload;

-- 6. Which pods ignore their stop signal?
-- A longer period does not help: the first process needs a handler, or an init that forwards the signal.
select namespace, workload, count(*) as seen, count(distinct node) as nodes
from 'tables/pods.parquet'
where ignored_stop
group by all
order by seen desc, workload;

-- 7. Which waves overrun, and how often?
-- ebbtide fleet advise computes better periods.
select priority, count(*) as ran, count(*) filter (where outcome = 'overran') as overran,
       percentile_disc(0.5) within group (order by took_ms) as p50_ms, max(had_ms) as period_ms
from 'tables/waves.parquet'
where began_ms is not null
group by all
order by priority;

-- 8. On which nodes did the daemon die in mid-shutdown?
select node, shutdown, daemons, outcome
from 'tables/shutdowns.parquet'
where daemons > 1
order by node;

-- 9. Where is a pod's end unknown?
select s.node, s.kind, s.outcome, count(*) as pods
from 'tables/pods.parquet' p join 'tables/shutdowns.parquet' s using (journal_id, shutdown)
where p.outcome in ('unknown', '')
group by all
order by pods desc, s.node;

-- 10. Which warnings are most common?
select code, count(*) as times, count(distinct node) as nodes, min(text) as example
from 'tables/notices.parquet'
group by code
order by times desc, code;
