-- Slurm's burst_buffer.lua (plugin burst_buffer/lua): copies files from fast storage to where they
-- are kept, after the job. A job asks for it in its script:
--     #BB_LUA stage_out /nvme/ckpt.sion /project/ckpt.sion
-- Slurm runs these functions on the controller's node, which has to see both. A multifile, with all
-- its physical files, is completed if its job was killed, then copied with chunks as long as their
-- data. Other files are copied as they are.

local pattern = "^#BB_LUA%s+stage_out%s+(%S+)%s+(%S+)%s*$"

-- A word that no shell takes apart.
local function quoted(word)
   return "'" .. word:gsub("'", "'\\''") .. "'"
end

local function is_multifile(path)
   local file = io.open(path, "rb")
   local magic = file and file:read(4)
   if file then
      file:close()
   end
   return magic == "sion"
end

local function copy(source, target)
   local from, to = quoted(source), quoted(target)
   if not is_multifile(source) then
      return os.execute("cp -p -- " .. from .. " " .. to)
   end
   return os.execute("kakehi multifile repair -q " .. from .. " >/dev/null" ..
      " && kakehi multifile defrag -q --force " .. from .. " " .. to .. " >/dev/null")
end

-- Lua 5.1 returns a number, later ones a boolean.
local function failed(result)
   return result ~= true and result ~= 0
end

-- When the job is submitted: refuses a line that is not understood.
function slurm_bb_job_process(job_script, uid, gid, job_info)
   for line in io.lines(job_script) do
      if line:match("^#BB_LUA%s+stage_out") and not line:match(pattern) then
         return -1, "write '#BB_LUA stage_out SOURCE TARGET'"
      end
   end
   return 0, ""
end

-- After the job.
function slurm_bb_data_out(job_id, job_script, uid, gid, job_info)
   for line in io.lines(job_script) do
      local source, target = line:match(pattern)
      if source and failed(copy(source, target)) then
         return -1, "cannot copy " .. source .. " to " .. target
      end
   end
   return 0, ""
end
